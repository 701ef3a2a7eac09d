package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// portTitles are the titles of the table of the ports' counters. portWidths are the widths of its
// columns on a terminal.
var (
	portTitles = []string{"end", "bytes sent", "packets", "received", "packets", "errors", "congestion", "pauses"}
	portWidths = []int{6, 13, 10, 12, 10, 6, 10, 6}
)

// portHeadline is the headline of the table of the ports' counters.
const portHeadline = "Counted by the ports during all runs, with headers; - is nothing or not counted."

// ports are the counters of both ends, summed over the runs.
type ports struct{ client, server result.Counters }

func (p *ports) add(r *result.Run) {
	if r.Client != nil {
		p.client = p.client.Add(r.Client.Counters)
	}
	if r.Server != nil {
		p.server = p.server.Add(r.Server.Counters)
	}
}

// rows returns a row for each end that has counters.
func (p *ports) rows() (all [][]string) {
	for _, end := range []struct {
		name     string
		counters result.Counters
	}{{"client", p.client}, {"server", p.server}} {
		c := end.counters
		if len(c) == 0 {
			continue
		}
		sent, received := c.Sent(), c.Received()
		all = append(all, []string{end.name, count(sent.Bytes), count(sent.Packets), count(received.Bytes),
			count(received.Packets), count(c.Errors().Total()), count(c.Congestion().Total()),
			count(c.Pauses().Total())})
	}
	return all
}

func count(n int64) string {
	if n <= 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// troubleLines returns a line for each end of a run whose port has counted ECN packets, pause
// frames, waits for credits, or packets that were lost, damaged or repeated.
func troubleLines(r *result.Run) (all []string) {
	for _, end := range []struct {
		name string
		end  *result.End
	}{{"client", r.Client}, {"server", r.Server}} {
		if end.end == nil {
			continue
		}
		c := end.end.Counters
		if list := slices.Concat(c.Errors().List(), c.Congestion().List(), c.Pauses().List()); len(list) > 0 {
			all = append(all, fmt.Sprintf("the %s's port has counted %s", end.name, strings.Join(list, ", ")))
		}
	}
	return all
}
