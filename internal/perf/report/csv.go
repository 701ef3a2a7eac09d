package report

import (
	"cmp"
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// field is one column of the CSV output. Each direction of each run is a row.
type field struct {
	name   string
	text   func(r *result.Run, f *result.Flow) string
	ofCase bool // it depends on the case alone
}

// timeField returns a column with a time. The function d selects a distribution, and the function
// get selects a time of that distribution. The cell is empty if d returns nil or get returns a
// negative number.
func timeField(name string, get func(*result.Distribution) float64, d func(*result.Stream) *result.Distribution) field {
	return field{name: name, text: func(_ *result.Run, f *result.Flow) string {
		if dist := d(f.Stream); dist != nil && get(dist) >= 0 {
			return strconv.FormatFloat(get(dist), 'f', -1, 64)
		}
		return ""
	}}
}

func numberField(name string, of func(*result.Run, *result.Flow) float64) field {
	return field{name: name, text: func(r *result.Run, f *result.Flow) string {
		return strconv.FormatFloat(of(r, f), 'f', -1, 64)
	}}
}

func fields() []field {
	latency := func(s *result.Stream) *result.Distribution { return s.Latency }
	corrected := func(s *result.Stream) *result.Distribution { return s.Corrected }
	percentile := func(p float64) func(*result.Distribution) float64 {
		return func(d *result.Distribution) float64 {
			if !d.Enough(p) {
				return -1
			}
			return d.At(p)
		}
	}
	cost := func(end *result.End) result.Cost {
		if end == nil {
			return result.Cost{}
		}
		return end.Cost
	}
	ofCase := func(name string, text func(*result.Case) string) field {
		return field{name, func(r *result.Run, _ *result.Flow) string { return text(&r.Case) }, true}
	}
	return []field{
		ofCase("test", func(c *result.Case) string { return c.Test }),
		ofCase("mode", func(c *result.Case) string { return c.Mode }),
		ofCase("layer", func(c *result.Case) string { return c.Layer }),
		{"direction", func(_ *result.Run, f *result.Flow) string { return f.Direction }, true},
		ofCase("poll", func(c *result.Case) string { return c.Poll }),
		ofCase("verify", func(c *result.Case) string { return strconv.FormatBool(c.Verify) }),
		ofCase("srq", func(c *result.Case) string { return strconv.FormatBool(c.SRQ) }),
		ofCase("size_bytes", func(c *result.Case) string { return strconv.Itoa(c.Size) }),
		ofCase("queue_pairs", func(c *result.Case) string { return strconv.Itoa(c.QPs) }),
		ofCase("threads", func(c *result.Case) string { return strconv.Itoa(max(c.Threads, 1)) }),
		ofCase("depth", func(c *result.Case) string { return strconv.Itoa(c.Depth) }),
		ofCase("batch", func(c *result.Case) string { return strconv.Itoa(c.Batch) }),
		ofCase("rate_per_s", func(c *result.Case) string { return strconv.FormatFloat(c.Rate, 'f', -1, 64) }),
		ofCase("transport", func(c *result.Case) string { return cmp.Or(c.Transport, result.RC) }),
		{name: "repeat", text: func(r *result.Run, _ *result.Flow) string { return strconv.Itoa(max(r.Repeat, 1)) }},
		{name: "started", text: func(r *result.Run, _ *result.Flow) string { return stamp(r.Started) }},
		numberField("operations", func(_ *result.Run, f *result.Flow) float64 { return float64(f.Stream.Ops) }),
		numberField("elapsed_s",
			func(_ *result.Run, f *result.Flow) float64 { return time.Duration(f.Stream.Elapsed).Seconds() }),
		numberField("gbit_s", func(_ *result.Run, f *result.Flow) float64 { return f.Stream.GbitS }),
		numberField("mib_s", func(_ *result.Run, f *result.Flow) float64 { return f.Stream.MiBS }),
		numberField("ops_s", func(_ *result.Run, f *result.Flow) float64 { return f.Stream.OpsS }),
		timeField("min_ns", func(d *result.Distribution) float64 { return d.Min }, latency),
		timeField("mean_ns", func(d *result.Distribution) float64 { return d.Mean }, latency),
		timeField("stddev_ns", func(d *result.Distribution) float64 { return d.Stddev }, latency),
		timeField("p50_ns", percentile(50), latency),
		timeField("p90_ns", percentile(90), latency),
		timeField("p99_ns", percentile(99), latency),
		timeField("p99.9_ns", percentile(99.9), latency),
		timeField("p99.99_ns", percentile(99.99), latency),
		timeField("p99.999_ns", percentile(99.999), latency),
		timeField("max_ns", func(d *result.Distribution) float64 { return d.Max }, latency),
		timeField("corrected_p50_ns", percentile(50), corrected),
		timeField("corrected_p99_ns", percentile(99), corrected),
		timeField("corrected_max_ns", func(d *result.Distribution) float64 { return d.Max }, corrected),
		numberField("initiator_cpu_s_per_million_ops",
			func(_ *result.Run, f *result.Flow) float64 { return cost(f.Initiator).PerMillion }),
		numberField("target_cpu_s_per_million_ops",
			func(_ *result.Run, f *result.Flow) float64 { return cost(f.Target).PerMillion }),
		numberField("initiator_cpu_s_per_gb", func(_ *result.Run, f *result.Flow) float64 { return cost(f.Initiator).PerGB }),
		numberField("target_cpu_s_per_gb", func(_ *result.Run, f *result.Flow) float64 { return cost(f.Target).PerGB }),
		numberField("lost_messages", func(_ *result.Run, f *result.Flow) float64 {
			if f.Target == nil {
				return 0
			}
			return float64(f.Target.Lost)
		}),
	}
}

// CSV writes a row of names, and then one row for each direction of each run. The first columns say
// who was measured; for a mesh they also have the error of a pair. The last rows are for the cases
// that ran several times, one for each metric: their column repeat is "median", and the metric's
// column has the median of the runs.
func CSV(w io.Writer, d *result.Document) error {
	out, all := csv.NewWriter(w), fields()
	ends := func(client, server *result.Facts) []string {
		return []string{client.Host, client.Device, client.Link, server.Host, server.Device, server.Link, labelText(d)}
	}
	titles := []string{"client_host", "client_device", "client_link", "server_host", "server_device", "server_link",
		"labels"}
	if d.Mesh != nil {
		titles = append(titles, "from", "to", "error")
	}
	for _, f := range all {
		titles = append(titles, f.name)
	}
	out.Write(titles)
	rows := func(r *result.Run, first ...string) {
		for _, flow := range r.Flows() {
			row := slices.Clone(first)
			for _, f := range all {
				row = append(row, f.text(r, &flow))
			}
			out.Write(row)
		}
	}
	for i := range d.Runs {
		rows(&d.Runs[i], ends(&d.Client, &d.Server)...)
	}
	for _, s := range result.Summarize(d.Runs) {
		if s.Runs < 2 {
			continue
		}
		row := ends(&d.Client, &d.Server)
		for _, f := range all {
			text := ""
			switch run := (result.Run{Case: s.Case}); {
			case f.name == "repeat":
				text = "median"
			case f.name == strings.TrimPrefix(s.Metric, "latency_"):
				text = strconv.FormatFloat(s.Median, 'f', -1, 64)
			case f.ofCase:
				text = f.text(&run, &result.Flow{Direction: s.Case.Direction})
			}
			row = append(row, text)
		}
		out.Write(row)
	}
	if d.Mesh != nil {
		facts := map[string]*result.Facts{}
		for i := range d.Mesh.Hosts {
			h := &d.Mesh.Hosts[i]
			facts[h.Address] = cmp.Or(h.Facts, &result.Facts{})
		}
		for _, mx := range d.Mesh.Matrices {
			for _, p := range mx.Pairs {
				first := append(ends(facts[p.From], facts[p.To]), p.From, p.To, p.Error)
				if p.Run == nil {
					out.Write(append(first, make([]string, len(all))...))
				} else {
					rows(p.Run, first...)
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}
