package report

import (
	"bytes"
	"io"
	"testing"
	"unicode"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// FuzzDocument reads a document as report and compare do, and writes it in every form. Only
// printable text may reach a terminal.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		`{"schema":"datperf/1","client":{"kernel":"1"},"runs":[{"settings":{"test":"send","mode":"lat","layer":"udat","direction":"out","size_bytes":64,"queue_pairs":1,"poll":"busy"},"client":{"initiated":{"operations":3,"latency":{"count":3,"percentiles":[{"percentile":50,"value_ns":1000}],"curve":[{"percentile":0,"value_ns":1},{"percentile":100,"value_ns":2}]}}},"server":{}}]}`,
		`{"schema":"datperf/1","runs":[{"settings":{"test":"write","mode":"bw","direction":"both","size_bytes":0},"client":{"initiated":{"gbit_s":1e308}},"server":{"initiated":{"gbit_s":1e308},"intervals":[{"gbit_s":-1},{"stop_s":1e9}]}}]}`,
		`{"schema":"datperf/1","runs":[{"settings":{"mode":"lat","rate_per_s":-1,"size_bytes":-5},"server":{"initiated":{"latency":{},"latency_corrected":{}},"notes":["\u001b[2J"]}}]}`,
		`{"schema":"datperf/1","client":{"device":"\u001b[2J","warnings":["\r"]},"labels":{"\n":"\n"},"runs":[{"settings":{"test":"\n","layer":"\u202e","mode":"bw"},"client":{"initiated":{}}},{"settings":{"mode":"bw"},"client":{"initiated":{}}}]}`,
		`{"schema":"datperf/1","runs":[{}]}`,
		`{"schema":"datperf/1","runs":[{"client":{"initiated":{}}}]}`,
		`{"schema":"datperf/1","runs":[{"settings":{"mode":"lat"},"client":{"initiated":{}}}]}`,
		`{"schema":"datperf/1","mesh":{"hosts":[{"address":"a"},{"address":"\u001b[2J","error":"|"}],"matrices":[{"settings":{"mode":"lat"},"pairs":[{"from":"a","to":"b","error":"\n"},{"from":"a","to":"\u001b[2J","run":{"settings":{"mode":"lat"},"client":{"initiated":{"latency":{}}}}}]}]}}`,
		`{"schema":"datperf/1","mesh":{"matrices":[{"pairs":[{}]}]}}`,
		`{"schema":"datperf/1"}`, `{"schema":"datperf/0"}`, `[]`, `null`, ``,
		`{"schema":"datperf/1","labels":{"a|":"|"},"sections":[{"title":"\u001b[2J","errors":["|"],"tables":[{"unit":"ns","series":["a","b"],"rows":[{"cells":{"a":{"median":0},"b":{"median":1,"repeats":[1,2]}},"marks":[{"text":"\n"}],"errors":["e"]}]}]}]}`,
		`{"schema":"datperf/1","runs":null,"client":null}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := result.Parse(data)
		if err != nil {
			return
		}
		var out bytes.Buffer
		Ends(&out, &d.Client, &d.Server)
		if d.Mesh != nil {
			Mesh(&out, d.Mesh)
		}
		table := NewTable(&out, d.Cases())
		columns := NewPerftest(&out, false)
		stream := NewStream(io.Discard)
		for i := range d.Runs {
			table.Run(&d.Runs[i])
			columns.Run(&d.Runs[i])
			stream.Run(&d.Runs[i])
		}
		assert.NilError(t, stream.Err())
		columns.Close()
		table.Summary(result.Summarize(d.Runs))
		table.Close()
		c := result.Compare(d, d, 5, 1)
		assert.Equal(t, c.Count(result.Worse), 0)
		c.Unlike = Differences(d, d)
		Comparison(&out, &c)
		for _, r := range out.String() {
			assert.Assert(t, r == '\n' || unicode.IsPrint(r), "%q", out.String())
		}
		assert.NilError(t, CSV(io.Discard, d))
		assert.NilError(t, HTML(io.Discard, d))
		assert.NilError(t, d.Write(io.Discard))
	})
}
