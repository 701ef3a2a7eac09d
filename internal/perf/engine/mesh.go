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

// Mesh measures between several servers, in steps: what is in a step measures at the same time.
type Mesh struct {
	Hosts   []string // addresses of control ports, with ports; each differs from the others
	Plan    Plan     // each of its cases makes a matrix; Repeats is 1
	Pattern string   // one of result.Patterns; empty: result.Pairs
	AtOnce  int      // pairs that measure at the same time, of result.Pairs; 0: as many as there are
	// Timeout bounds the measurement of a case between two hosts, beside the case's duration.
	Timeout time.Duration
	Wait    time.Duration // for servers that are not there yet, in the beginning
	Dial    func(ctx context.Context, address string) (net.Conn, error)
	Version string
	Finish  <-chan struct{}    // closed: end now, keep results so far; may be nil
	Watch   func(MeshProgress) // after each step and case; may be nil

	mesh  *result.Mesh
	hosts []meshEnd
	slow  map[route]string // pairs that took too long, once: why they are not measured again
}

// MeshProgress is what a mesh has just measured.
type MeshProgress struct {
	Step, Steps int // of all cases
	Case        *result.Case
	Pairs       []result.Pair     // that were tried
	Lost        []result.MeshHost // hosts that are left out from now on
	Left        time.Duration     // until the end, if the other steps take as long
}

// meshEnd is a host, as the one that leads the mesh sees it.
type meshEnd struct {
	ctl    *control // nil: no conversation
	failed []int    // the hosts that it has failed with since its last success
	lost   bool     // Watch knows that it is left out
}

// together reports whether the pairs of a step begin when all are connected.
func (m *Mesh) together() bool { return m.Pattern != result.Pairs }

// Validate refuses what is no mesh, and completes it.
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
	case m.Pattern == result.Bisection && n%2 == 1:
		return fmt.Errorf("--pattern bisection with %d hosts: it needs an even number, for two halves", n)
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
