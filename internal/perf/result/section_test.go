package result

import (
	"errors"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

func table() *Table {
	t := &Table{Title: "Latency", Unit: "ns", Series: []string{"perftest", "cverbs", "udat"}}
	for _, v := range []float64{3000, 1000, 2000} {
		t.Add("2 B", "perftest", "ib_x -s 2", v)
	}
	t.Add("2 B", "cverbs", "datperf", 2090)
	t.Add("2 B", "udat", "datperf", 2110)
	return t
}

func TestSampleKeepsAllRepeats(t *testing.T) {
	x := table()
	want := &Sample{"ib_x -s 2", 2000, 1000, 3000, []float64{3000, 1000, 2000}}
	assert.DeepEqual(t, x.Sample("2 B", "perftest"), want)
	x.Add("2 B", "udat", "datperf", 2120)
	assert.Equal(t, x.Sample("2 B", "udat").Median, 2115.0)
	assert.Assert(t, x.Sample("2 B", "nobody") == nil && x.Sample("4 B", "udat") == nil)
}

func TestMarks(t *testing.T) {
	x := table()
	x.Mark("cverbs", "<=", 1.05, "perftest")
	x.Mark("udat", "<=", 1.05, "perftest", "2 B")
	x.Mark("udat", "<", 1, "perftest")
	x.Mark("udat", ">", 1, "perftest")
	x.Mark("cverbs", ">=", 1.05, "perftest")
	x.Mark("udat", "<=", 1, "nobody")            // not measured: not judged
	x.Mark("udat", "<=", 1, "perftest", "4 KiB") // another row
	x.Row("2 B").Limit("udat allocates nothing", 0, 0.01)
	var met []bool
	var texts []string
	for _, m := range x.Rows[0].Marks {
		met, texts = append(met, m.Met), append(texts, m.Text)
	}
	assert.DeepEqual(t, met, []bool{true, false, false, true, false, true})
	assert.Equal(t, texts[1], "udat <= 1.05 x perftest")
	x.Fail("4 KiB", "perftest", errors.New("no route"))
	x.Fail("4 KiB", "perftest", errors.New("no route"))
	x.Fail("2 B", "perftest", errors.New("hung once")) // another round has measured it
	s := &Section{Errors: []string{"ended"}, Tables: []*Table{x}}
	assert.DeepEqual(t, s.Failed(), []string{"ended", "Latency, 4 KiB: perftest: no route"})
	yes, no := Marks(s, s)
	assert.DeepEqual(t, []int{yes, no}, []int{6, 6})
}

// A machine that becomes slower between two rounds does not change a ratio.
func TestRatioIsOfRounds(t *testing.T) {
	a := &Sample{Repeats: []float64{10, 44, 12}, Median: 12}
	b := &Sample{Repeats: []float64{5, 20, 12}, Median: 12}
	assert.Equal(t, a.Ratio(b), 2.0)
	a.Repeats = a.Repeats[:2] // one has failed once
	assert.Equal(t, a.Ratio(b), 1.0)
}

func TestSectionsAreComplete(t *testing.T) {
	for _, text := range []string{`[null]`, `[{"tables":[null]}]`, `[{"tables":[{"series":["a"],"rows":[null]}]}]`,
		`[{"tables":[{"series":[]}]}]`} {
		_, err := Parse([]byte(`{"schema":"datperf/1","sections":` + text + `}`))
		assert.ErrorContains(t, err, "section 1", text)
	}
	rows := `[{"cells":{"a":null}}]`
	d, err := Parse([]byte(`{"schema":"datperf/1","sections":[{"tables":[{"series":["a"],"rows":` + rows + `}]}]}`))
	assert.NilError(t, err)
	assert.Assert(t, slices.Contains(d.Sections[0].Tables[0].Series, "a"))
}
