package result

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Flow is one direction of a run. In direction Out the client initiates the operations. In
// direction In the server initiates them.
type Flow struct {
	Direction string
	Stream    *Stream
	Initiator *End
	Target    *End
}

// Flows returns the directions that were measured.
func (r *Run) Flows() []Flow {
	var f []Flow
	if r.Client != nil && r.Client.Initiated != nil {
		f = append(f, Flow{Out, r.Client.Initiated, r.Client, r.Server})
	}
	if r.Server != nil && r.Server.Initiated != nil {
		f = append(f, Flow{In, r.Server.Initiated, r.Server, r.Client})
	}
	return f
}

// Validate returns an error if the run lacks what reports and comparisons need.
func (r *Run) Validate() error {
	flows := r.Flows()
	if !slices.Contains(Modes, r.Case.Mode) {
		return fmt.Errorf("its mode is %q: must be one of %s", r.Case.Mode, strings.Join(Modes, ", "))
	}
	for _, f := range flows {
		if r.Case.Mode == Latency && f.Stream.Latency == nil {
			return errors.New("it has no latency in it, although that is what was measured")
		}
	}
	if len(flows) == 0 {
		return errors.New("it has no measurement in it")
	}
	return nil
}

// Total returns the sum of the directions. If there are two, the elapsed time is the longer one,
// and the latency is that of the direction with the higher median.
func (r *Run) Total() Stream {
	flows := r.Flows()
	if len(flows) == 1 {
		return *flows[0].Stream
	}
	var t Stream
	for _, f := range flows {
		t.Ops += f.Stream.Ops
		t.Bytes += f.Stream.Bytes
		t.Elapsed = max(t.Elapsed, f.Stream.Elapsed)
		t.GbitS += f.Stream.GbitS
		t.MiBS += f.Stream.MiBS
		t.OpsS += f.Stream.OpsS
		if t.Latency == nil || f.Stream.Latency.At(50) > t.Latency.At(50) {
			t.Latency, t.Corrected = f.Stream.Latency, f.Stream.Corrected
		}
	}
	return t
}
