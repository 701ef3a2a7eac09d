package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

// display reports a plan's progress: it prints results to out, JSON lines to stream, and the
// running case to a terminal.
type display struct {
	out       io.Writer
	stream    *report.Stream   // may be nil
	perftest  *report.Perftest // used instead of table; may be nil
	table     *report.Table
	errors    io.Writer // standard error
	terminal  *os.File  // standard error, if it is a terminal that can erase a line; otherwise nil
	intervals bool
	repeats   int
	runs      []result.Run // runs so far of the case that is repeated

	mu     sync.Mutex
	now    string // the case that runs now; empty between runs
	began  time.Time
	last   string // the figures of the last interval
	shown  bool
	ticker *time.Ticker
	done   chan struct{}
}

func newDisplay(out, stderr io.Writer, o *outputs, cases []result.Case, repeats int) *display {
	d := &display{out: out, errors: stderr, intervals: o.intervals, repeats: repeats, table: report.NewTable(out, cases),
		done: make(chan struct{})}
	if o.perftest {
		d.perftest = report.NewPerftest(out, o.gbits)
	}
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		d.terminal = f
		d.ticker = time.NewTicker(500 * time.Millisecond)
		go d.refresh()
	}
	return d
}

func (d *display) refresh() {
	for {
		select {
		case <-d.done:
			return
		case <-d.ticker.C:
			d.mu.Lock()
			if passed := time.Since(d.began); d.now != "" && passed > time.Second {
				line := fmt.Sprintf("%s, %d s%s", d.now, int(passed.Seconds()), d.last)
				fmt.Fprintf(d.terminal, "%s%s", eraseLine, cutTo(d.terminal, line))
				d.shown = true
			}
			d.mu.Unlock()
		}
	}
}

const eraseLine = "\r\033[K"

// cutTo cuts a text so that it fits into one line of a terminal. The last column stays free,
// because some terminals begin a new line there.
func cutTo(terminal *os.File, text string) string {
	width, _, err := term.GetSize(int(terminal.Fd()))
	if runes := []rune(text); err == nil && width > 0 && len(runes) >= width {
		return string(runes[:width-1])
	}
	return text
}

// clear erases the progress line before other output. The caller holds d.mu.
func (d *display) clear() {
	if d.shown {
		fmt.Fprint(d.terminal, eraseLine)
		d.shown = false
	}
}

func (d *display) close() {
	if d.ticker != nil {
		d.ticker.Stop()
		close(d.done)
	}
	d.locked(func() {
		if d.perftest != nil {
			d.perftest.Close()
		} else {
			d.table.Close()
		}
	})
}

// locked erases the progress line and runs f, both while it holds d.mu.
func (d *display) locked(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	f()
}

func (d *display) watcher() engine.Watcher {
	return engine.Watcher{
		Begin: func(client, server *result.Facts) {
			d.locked(func() {
				if d.perftest == nil {
					report.Ends(d.out, client, server)
				}
				if d.stream != nil {
					d.stream.Begin(client, server)
				}
			})
		},
		Case: func(n, of int, c *result.Case, repeat int) {
			d.locked(func() {
				d.now, d.last = fmt.Sprintf("[%d/%d] %s", n, of, c.Name()), ""
				d.began = time.Now()
				if d.intervals && d.perftest == nil { // the intervals come before the case's row
					fmt.Fprintf(d.out, "%s, %s:\n", d.now, d.began.UTC().Format("15:04:05.000Z"))
				}
				if d.stream != nil {
					d.stream.Case(c, repeat)
				}
			})
		},
		Interval: func(iv result.Interval) {
			d.locked(func() {
				d.last = progress(&iv)
				if d.intervals && d.perftest == nil {
					report.IntervalLine(d.out, &iv)
				}
				if d.stream != nil {
					d.stream.Interval(&iv)
				}
			})
		},
		Run:  func(r *result.Run) { d.locked(func() { d.run(r) }) },
		Warn: func(text string) { d.locked(func() { fmt.Fprintf(d.errors, "datperf: %s\n", text) }) },
	}
}

// progress formats an interval: its latencies if the case measures latency, otherwise its rate.
func progress(iv *result.Interval) string {
	if iv.P50 > 0 {
		return fmt.Sprintf(": p50 %s, max %s, %d ops", result.Nanos(iv.P50), result.Nanos(iv.Max), iv.Ops)
	}
	return fmt.Sprintf(": %.3f Gb/s, %d ops", iv.GbitS, iv.Ops)
}

func (d *display) run(r *result.Run) {
	d.now = ""
	if d.stream != nil {
		d.stream.Run(r)
	}
	if d.perftest != nil {
		d.perftest.Run(r)
		return
	}
	d.table.Run(r)
	if d.runs = append(d.runs, *r); len(d.runs) == d.repeats {
		d.table.Summary(result.Summarize(d.runs))
		d.runs = nil
	}
}
