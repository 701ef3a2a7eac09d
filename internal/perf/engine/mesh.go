package engine

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Mesh measures between several servers, in steps. All pairs of a step measure at the same time.
type Mesh struct {
	Hosts   []string // addresses of the servers, HOST:PORT, all different
	Plan    Plan     // each case gives one matrix; Repeats must be 1
	Pattern string   // one of result.Patterns; empty: result.Pairs
	AtOnce  int      // largest number of pairs in a step of result.Pairs; 0: no limit
	// Timeout is how long a measurement between two hosts may take in addition to the case's duration.
	Timeout time.Duration
	Wait    time.Duration // how long to wait at the start for servers that cannot be reached yet
	Dial    func(ctx context.Context, address string) (net.Conn, error)
	Version string
	Finish  <-chan struct{}    // when closed, the mesh ends at once and the results so far are kept; may be nil
	Watch   func(MeshProgress) // called after each case of a step; may be nil

	mesh  *result.Mesh
	hosts []meshEnd
	slow  map[route]string // pairs whose measurement timed out, and the reason not to measure them again
}

// MeshProgress reports the step that a mesh has just measured.
type MeshProgress struct {
	Step, Steps int // counted over all cases
	Case        *result.Case
	Pairs       []result.Pair     // pairs that the step tried to measure
	Lost        []result.MeshHost // hosts that the mesh no longer measures after this step
}

// meshEnd is the state of a host. The process that runs the mesh keeps it.
type meshEnd struct {
	ctl    *control // control connection to the host's server, or nil
	failed []int    // indices of the hosts with which this host has failed since its last success
	lost   bool     // Watch has been told that the host is left out
}

// together reports whether the pairs of a step wait until all of them are connected before they
// measure.
func (m *Mesh) together() bool { return m.Pattern != result.Pairs }

// Validate sets the defaults, and returns an error if a setting is invalid.
func (m *Mesh) Validate() error {
	m.Pattern = cmp.Or(m.Pattern, result.Pairs)
	switch n := len(m.Hosts); {
	case n < 2 || n > result.MaxMeshHosts:
		return fmt.Errorf("%s: must be from 2 to %d", result.Count(n, "host"), result.MaxMeshHosts)
	case m.Plan.Repeats != 1:
		return fmt.Errorf("--repeat %d: a mesh measures each pair once", m.Plan.Repeats)
	case m.Timeout < time.Second || m.Timeout > time.Hour:
		return fmt.Errorf("--pair-timeout %v: must be from %v to %v", m.Timeout, time.Second, time.Hour)
	case m.Wait < 0 || m.Wait > time.Hour:
		return fmt.Errorf("--wait %v: must be from 0s to %v", m.Wait, time.Hour)
	case !slices.Contains(result.Patterns, m.Pattern):
		return fmt.Errorf("--pattern %q: must be one of %s", m.Pattern, strings.Join(result.Patterns, ", "))
	case m.AtOnce < 0 || m.AtOnce > result.MaxMeshHosts:
		return fmt.Errorf("--at-once %d: must be from 1 to %d", m.AtOnce, result.MaxMeshHosts)
	case m.AtOnce > 0 && m.together():
		return fmt.Errorf("--at-once with --pattern %s: it measures all pairs of a step at once", m.Pattern)
	}
	seen := map[string]bool{}
	for _, h := range m.Hosts {
		if seen[h] {
			return fmt.Errorf("%s is given twice", h)
		}
		seen[h] = true
	}
	for _, c := range m.Plan.Cases {
		if m.together() && c.Duration == 0 {
			return fmt.Errorf("--pattern %s without --duration: its pairs must measure for the same time", m.Pattern)
		}
	}
	return m.Plan.Validate()
}

// route is a measurement from one host to another. The fields are the indices of the hosts in
// Mesh.Hosts.
type route struct{ from, to int }

// step is a set of routes that are measured at the same time.
type step []route

// stepsOf returns the steps of a pattern between n hosts. Each step has at most atOnce routes. If
// atOnce is 0, there is no such limit. In a step of Pairs, each host is in at most one route. In
// a step of Incast, all routes have the same server.
func stepsOf(pattern string, n, atOnce int) (all []step) {
	add := func(one step) {
		for atOnce > 0 && len(one) > atOnce {
			all, one = append(all, one[:atOnce]), one[atOnce:]
		}
		if len(one) > 0 {
			all = append(all, one)
		}
	}
	if pattern == result.Incast {
		for to := range n {
			var one step
			for from := range n {
				if from != to {
					one = append(one, route{from, to})
				}
			}
			add(one)
		}
		return all
	}
	for _, one := range tournament(n) {
		add(one)
		add(one.reversed())
	}
	return all
}

func (s step) reversed() step {
	back := make(step, len(s))
	for i, r := range s {
		back[i] = route{r.to, r.from}
	}
	return back
}

// tournament returns the rounds of a round-robin tournament by the circle method: every two hosts
// meet once, and no host is in two pairs of a round. The last host stays in place while the others
// rotate. With an odd number of hosts the last place is empty, and the host paired with it rests.
func tournament(n int) (rounds []step) {
	places := n + n%2
	for r := range places - 1 {
		var one step
		for i := range places / 2 {
			a, b := (r+i)%(places-1), (r-i+places-1)%(places-1)
			if i == 0 {
				b = places - 1
			}
			if b < n {
				one = append(one, route{min(a, b), max(a, b)})
			}
		}
		rounds = append(rounds, one)
	}
	return rounds
}
