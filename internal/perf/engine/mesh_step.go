package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// endedEarly is the error of a pair that was not measured before the end.
const endedEarly = "not measured: ended early"

// measure measures a case between the pairs of a step, all at the same time. It returns all pairs,
// and those that it has tried.
func (m *Mesh) measure(ctx context.Context, one step, c *result.Case) (pairs, tried []result.Pair) {
	pairs = make([]result.Pair, len(one))
	errs, began := make([]error, len(one)), make([]bool, len(one))
	var meeting *gathering
	if m.together() {
		meeting = &gathering{missing: len(one), open: make(chan struct{})}
	}
	var measuring sync.WaitGroup
	for i, r := range one {
		pairs[i] = result.Pair{From: m.Hosts[r.from], To: m.Hosts[r.to]}
		if why := m.refused(ctx, r); why != "" {
			pairs[i].Error = why
			meeting.leave()
			continue
		}
		began[i] = true
		measuring.Go(func() {
			arrived := sync.OnceFunc(meeting.leave)
			defer arrived()
			pairs[i].Run, errs[i] = m.order(ctx, r, c, func() { arrived(); meeting.wait(ctx, m.meetTime()) })
		})
	}
	measuring.Wait()
	for i, err := range errs {
		if err == nil {
			continue
		}
		pairs[i].Error = err.Error()
		var lost *reachError
		switch r := one[i]; {
		case ctx.Err() != nil:
			pairs[i].Error = endedEarly
		case errors.As(err, &lost):
			m.mesh.Hosts[r.from].Error = err.Error()
		case errors.Is(err, errPairTime):
			m.slow[r.pair()] = "not measured again: " + err.Error()
		}
	}
	for i, yes := range began {
		if yes {
			tried = append(tried, pairs[i])
		}
	}
	return pairs, tried
}

// pair is the same for both orders of two hosts.
func (r route) pair() route { return route{min(r.from, r.to), max(r.from, r.to)} }

// refused returns why two hosts are not measured, or nothing.
func (m *Mesh) refused(ctx context.Context, r route) string {
	if ctx.Err() != nil {
		return endedEarly
	}
	return cmp.Or(m.mesh.Hosts[r.from].Error, m.mesh.Hosts[r.to].Error, m.slow[r.pair()])
}

// meetTime bounds the wait until all pairs of a step are connected. Those that are begin then.
func (m *Mesh) meetTime() time.Duration { return min(m.Timeout/2, 20*time.Second) }

// gathering lets the pairs of a step begin together: wait returns when all have connected or
// failed. A nil gathering is for pairs that begin at once.
type gathering struct {
	mu      sync.Mutex
	missing int
	open    chan struct{}
}

// leave notes that one more pair has connected or failed.
func (g *gathering) leave() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missing--; g.missing == 0 {
		close(g.open)
	}
}

func (g *gathering) wait(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-g.open:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// orderError is why a host could not measure to another one; it takes further orders.
type orderError struct{ text string }

func (e *orderError) Error() string { return e.text }

// reachError is why the conversation with a host could not begin.
type reachError struct{ error }

func (e *reachError) Unwrap() error { return e.error }

// errPairTime is the error of a measurement between two hosts that took too long.
var errPairTime = errors.New("gave up")

// order lets one host measure to another one. A host has one order at a time. meet is called when
// the pair of a step that begins together is connected.
func (m *Mesh) order(ctx context.Context, r route, c *result.Case, meet func()) (*result.Run, error) {
	host := &m.hosts[r.from]
	if host.ctl != nil {
		select {
		case <-host.ctl.gone: // it was idle for too long, or gave way to another client
			host.ctl.close()
			host.ctl = nil
		default:
		}
	}
	if host.ctl == nil {
		k, _, err := m.open(ctx, m.Hosts[r.from], 2*len(m.Hosts)*len(m.Plan.Cases))
		if err != nil {
			return nil, &reachError{err}
		}
		host.ctl = k
	}
	run, err := m.pair(ctx, host.ctl, m.Hosts[r.to], c, meet)
	var ordered *orderError
	if err != nil && !errors.As(err, &ordered) { // the conversation is over
		host.ctl.close()
		host.ctl = nil
	}
	return run, err
}

// hang ends the conversation with a host.
func (m *Mesh) hang(host int) {
	if k := m.hosts[host].ctl; k != nil {
		k.send(message{Kind: msgBye})
		k.close()
	}
}

// pair orders one measurement.
func (m *Mesh) pair(ctx context.Context, k *control, to string, c *result.Case, meet func()) (*result.Run, error) {
	if err := k.send(message{Kind: msgMesh, Peer: to, Case: c, Together: m.together()}); err != nil {
		return nil, err
	}
	patience := m.Timeout + time.Duration(c.Duration)
	timed, cancel := context.WithTimeoutCause(ctx, patience,
		fmt.Errorf("%w after %v (--pair-timeout)", errPairTime, patience))
	defer cancel()
	answer, err := k.expectFor(2*patience, timed.Done(), msgMesh, msgReady)
	if err == nil && answer.Kind == msgReady {
		meet()
		if err = k.send(message{Kind: msgGo}); err == nil {
			answer, err = k.expectFor(2*patience, timed.Done(), msgMesh)
		}
	}
	switch {
	case errors.Is(err, errStopped):
		return nil, context.Cause(timed)
	case err != nil:
		return nil, err
	case answer.Run == nil:
		return nil, &orderError{cmp.Or(answer.Text, "it gave no reason")}
	}
	run, err := readRaw[result.Run](answer.Run)
	if err == nil {
		err = run.Validate()
	}
	if err == nil && run.Case.Mode != c.Mode {
		err = errors.New("another case than was ordered")
	}
	if err != nil {
		return nil, fmt.Errorf("the server's run: %w", err)
	}
	return run, nil
}
