package result

import (
	"errors"
	"fmt"
	"slices"
)

// MaxMeshHosts is the largest number of hosts of a mesh.
const MaxMeshHosts = 256

// Patterns of a mesh. A pattern determines which hosts measure to which other hosts, and which
// pairs of hosts do so at the same time.
const (
	Pairs  = "pairs"  // each host to each other host; pairs that measure at the same time have no host in common
	Incast = "incast" // all other hosts to one host at the same time, for each host in turn
)

// Patterns lists all patterns of a mesh.
var Patterns = []string{Pairs, Incast}

// Mesh contains the results of measurements between several hosts.
type Mesh struct {
	Pattern  string     `json:"pattern,omitempty"`       // empty: Pairs
	Steps    int        `json:"steps,omitempty"`         // number of steps of each case
	AtOnce   int        `json:"pairs_at_once,omitempty"` // number of pairs of the largest step
	Elapsed  Seconds    `json:"elapsed_s,omitempty"`
	Hosts    []MeshHost `json:"hosts"`
	Matrices []Matrix   `json:"matrices"` // one for each case
}

// MeshHost is one host of a mesh.
type MeshHost struct {
	Address string `json:"address"` // address of the host's control port
	Facts   *Facts `json:"facts,omitempty"`
	Error   string `json:"error,omitempty"` // why the host could not be reached or was given up
}

// Matrix contains the results of one case for all pairs, sorted by the pairs' hosts.
type Matrix struct {
	Case  Case   `json:"settings"`
	Pairs []Pair `json:"pairs"`
}

// Pair is the result of a measurement from one host to another: a run or an error.
type Pair struct {
	From  string `json:"from"` // the client's address
	To    string `json:"to"`   // the server's address
	Run   *Run   `json:"run,omitempty"`
	Error string `json:"error,omitempty"`
}

// Figure returns the figure that the matrix shows for a pair: the median latency in microseconds,
// or the bandwidth in Gb/s. It returns false if the pair failed.
func (p *Pair) Figure() (float64, bool) {
	if p == nil || p.Run == nil {
		return 0, false
	}
	total := p.Run.Total()
	if p.Run.Case.Mode == Latency {
		return total.Latency.At(50) / 1e3, true
	}
	return total.GbitS, true
}

// Sorted returns the pairs that were measured, the best one first.
func (m *Matrix) Sorted() []*Pair {
	var all []*Pair
	for i := range m.Pairs {
		if m.Pairs[i].Run != nil {
			all = append(all, &m.Pairs[i])
		}
	}
	slices.SortStableFunc(all, func(a, b *Pair) int {
		x, _ := a.Figure()
		y, _ := b.Figure()
		if m.Case.Mode == Bandwidth {
			x, y = y, x
		}
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return all
}

// Failed returns the number of measurements that failed, and the number of all measurements.
func (m *Mesh) Failed() (failed, all int) {
	for i := range m.Matrices {
		all += len(m.Matrices[i].Pairs)
		failed += len(m.Matrices[i].Pairs) - len(m.Matrices[i].Sorted())
	}
	return failed, all
}

// validate returns an error if the mesh lacks what the reports need.
func (m *Mesh) validate() error {
	if len(m.Hosts) > MaxMeshHosts {
		return fmt.Errorf("it has %s, the limit is %d", Count(len(m.Hosts), "host"), MaxMeshHosts)
	}
	known := map[string]bool{}
	for _, h := range m.Hosts {
		known[h.Address] = true
	}
	for i := range m.Matrices {
		for j := range m.Matrices[i].Pairs {
			p := &m.Matrices[i].Pairs[j]
			switch {
			case !known[p.From] || !known[p.To]:
				return fmt.Errorf("the pair of %q and %q is not of its hosts", p.From, p.To)
			case p.Run == nil && p.Error == "":
				return fmt.Errorf("the pair of %q and %q has neither a run nor an error", p.From, p.To)
			case p.Run == nil:
				continue
			case p.Run.Case.Mode != m.Matrices[i].Case.Mode:
				return errors.New("a run has another mode than its matrix")
			}
			if err := p.Run.Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}
