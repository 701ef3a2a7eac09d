package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// Perftest prints runs in the columns of perftest's programs. Latencies are in microseconds. They
// are half of the round trip for the tests for which perftest reports half. t_max is the true
// maximum and t_typical the median.
type Perftest struct {
	w    io.Writer
	last string
	Gbit bool // bandwidth in Gb/s instead of MiB/s
}

// NewPerftest returns a Perftest that prints to w.
func NewPerftest(w io.Writer, gbit bool) *Perftest { return &Perftest{w: w, Gbit: gbit} }

const rule = "---------------------------------------------------------------------------------------"

// Run prints one run.
func (p *Perftest) Run(r *result.Run) {
	if r.Case.Mode != p.last {
		fmt.Fprintln(p.w, rule)
		unit := "MiB/sec"
		if p.Gbit {
			unit = "Gb/sec"
		}
		if r.Case.Mode == result.Latency {
			fmt.Fprintln(p.w, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "+
				"t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]")
		} else {
			fmt.Fprintf(p.w, " #bytes     #iterations    BW peak[%s]    BW average[%s]   MsgRate[Mpps]\n", unit, unit)
		}
		p.last = r.Case.Mode
	}
	s := r.Total()
	if l := s.Latency; r.Case.Mode == result.Latency && l != nil {
		fmt.Fprintf(p.w, " %-7d %-7d        %-7.2f        %-7.2f      %-7.2f           %-7.2f        %-7.2f          "+
			"%-7.2f                 %-7.2f\n",
			r.Case.Size, s.Ops, l.Min/1e3, l.Max/1e3, l.At(50)/1e3, l.Mean/1e3, l.Stddev/1e3, l.At(99)/1e3, l.At(99.9)/1e3)
		return
	}
	peak, average := max(peakGbit(r), s.GbitS), s.GbitS
	if !p.Gbit {
		peak, average = peak*1e9/8/(1<<20), s.MiBS
	}
	fmt.Fprintf(p.w, " %-7d    %-10d       %-7.2f            %-7.2f            %-7.6f\n", r.Case.Size, s.Ops, peak,
		average, s.OpsS/1e6)
	for _, e := range []*result.End{r.Client, r.Server} {
		if e != nil && e.Lost > 0 {
			fmt.Fprintf(p.w, " %d messages were lost\n", e.Lost)
		}
	}
}

// Close ends the table.
func (p *Perftest) Close() { fmt.Fprintln(p.w, rule) }

// peakGbit returns the sum of the directions' peaks. A peak is the bandwidth of the best whole
// interval.
func peakGbit(r *result.Run) float64 {
	sum := 0.0
	for _, f := range r.Flows() {
		best := 0.0
		for _, iv := range f.Initiator.Intervals {
			if iv.Whole(&r.Case) {
				best = max(best, iv.GbitS)
			}
		}
		sum += best
	}
	return sum
}

// PerftestNames maps the name of each of perftest's programs to its test and mode.
var PerftestNames = map[string][2]string{}

func init() {
	for test, name := range map[string]string{result.Send: "send", result.Write: "write", result.Read: "read",
		result.FetchAdd: "atomic"} {
		for _, mode := range result.Modes {
			PerftestNames[strings.Join([]string{"ib", name, mode}, "_")] = [2]string{test, mode}
		}
	}
}
