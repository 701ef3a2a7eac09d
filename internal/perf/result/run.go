package result

// Flow is one direction of a run: out from the client, or in to it.
type Flow struct {
	Direction string
	Stream    *Stream
	Initiator *End
	Target    *End
}

// Flows gives the directions that were measured.
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

// Total adds the directions up; a run of one direction is that direction.
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
