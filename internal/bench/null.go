package main

import (
	"os"
	"strings"
	"time"
)

// null measures the cost of the binding: posting and reaping on a device that does nothing, against the same loop in C.
// Every round runs every benchmark once.
func (b *bench) null(p *Part) error {
	call, allocs, err := b.nullTables(p)
	if err != nil {
		return err
	}
	return nullMarks(p.Tables[0], median(call), allocs)
}

// nullGuest measures the same in the virtual machine, where it explains what a crossing costs; the marks are for the bare processor.
func (b *bench) nullGuest(p *Part) error {
	_, _, err := b.nullTables(p)
	return err
}

// nullTables gives the times of empty calls, and the most allocations per operation of each layer.
func (b *bench) nullTables(p *Part) (call []float64, allocs map[string]float64, err error) {
	const how = "go test -tags nulldev -run xxx -bench Null -count N ./udat"
	const howDirect = "go test -tags nulldev,godat_direct -run xxx -bench Null -count N ./udat"
	cost := &Table{
		Title: "Post and poll of one send, and of 32 at once, per send", Unit: "ns", Series: []string{"C", "cverbs", "udat", "cverbs, direct", "udat, direct"}, How: []string{how, howDirect},
		Note: "A call is an empty call into C through cgo; it is the unit in which the marks of single operations are given. Direct: built with the tag godat_direct.",
	}
	others := &Table{Title: "Other benchmarks on the device that does nothing", Unit: "ns", Series: []string{"time"}, How: []string{how}}
	p.Tables = append(p.Tables, cost, others)
	allocs = map[string]float64{}
	rounds, time1 := 3*b.rounds, "0.5s"
	if b.guest {
		rounds = b.rounds
	}
	if b.quick {
		time1 = "0.05s"
	}
	for range rounds {
		for _, build := range []struct{ program, series, how string }{{"null.test", "", how}, {"null-direct.test", ", direct", howDirect}} {
			text, err := b.runIn("udat", 5*time.Minute, b.bin+"/"+build.program, "-test.run=xxx", "-test.bench=Null", "-test.benchtime="+time1, "-test.benchmem")
			if err != nil {
				return nil, nil, err
			}
			all, err := parseGoBench(text)
			if err != nil {
				return nil, nil, err
			}
			for _, m := range all {
				switch layer, batch, _ := strings.Cut(strings.TrimPrefix(m.Name, "Null"), "/"); {
				case layer == "Cverbs" || layer == "Udat":
					series := strings.ToLower(layer) + build.series
					cost.add("batch of "+batch, series, build.how, m.NsOp)
					allocs[series] = max(allocs[series], m.Allocs)
				case build.series != "": // the same in both
				case layer == "C":
					cost.add("batch of "+batch, "C", how, m.NsOp)
				case layer == "Call":
					call = append(call, m.NsOp)
					others.add("empty call into C", "time", how, m.NsOp)
				case strings.HasPrefix(layer, "Look"):
					others.add("a look at an empty queue, "+batch+" in one call, "+strings.ToLower(layer[len("Look"):]), "time", how, m.NsOp)
				default:
					others.add(layer, "time", how, m.NsOp)
				}
			}
		}
	}
	return call, allocs, nil
}

// nullMarks judges single operations by what they cost over C, in empty calls, and batches by the factor.
func nullMarks(cost *Table, empty float64, allocs map[string]float64) error {
	for _, r := range cost.Rows {
		c := cost.sample(r.Name, "C")
		if c == nil {
			continue
		}
		for _, m := range []struct {
			series string
			calls  float64 // allowed over C, for one
			factor float64 // of C, for 32
		}{{"cverbs", 3, 1.5}, {"udat", 5, 2.5}} {
			v := cost.sample(r.Name, m.series)
			switch {
			case v == nil || empty == 0:
			case r.Name == "batch of 1":
				r.mark(m.series+" <= C + "+number(m.calls)+" calls, in calls over C", (v.Median-c.Median)/empty, m.calls)
			default:
				r.mark(m.series+" <= "+number(m.factor)+" x C", ratio(v, c), m.factor)
			}
			if a, ok := allocs[m.series]; ok {
				r.mark(m.series+" allocations per operation", a, 0)
			}
		}
	}
	return nil
}

// mark sets a mark by a value that must not be above the limit.
func (r *Row) mark(text string, value, limit float64) {
	r.Marks = append(r.Marks, Mark{Text: text, Value: value, Limit: limit, Met: value <= limit})
}

// runIn runs a program in a folder, and gives its standard output.
func (b *bench) runIn(dir string, limit time.Duration, argv ...string) (string, error) {
	old, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if err := os.Chdir(dir); err != nil {
		return "", err
	}
	defer os.Chdir(old)
	return b.run(limit, argv...)
}

func (b *bench) run(limit time.Duration, argv ...string) (string, error) {
	p, err := start(limit, nil, argv...)
	if err != nil {
		return "", err
	}
	return p.wait()
}
