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

// endedEarly is the error of a pair that was not measured because the mesh ended early.
const endedEarly = "not measured: ended early"

// measure measures a case between all pairs of a step at the same time. It returns all pairs of the
// step, and those pairs of the step that it tried to measure.
func (m *Mesh) measure(ctx context.Context, one step, c *result.Case) (pairs, tried []result.Pair) {
	pairs = make([]result.Pair, len(one))
	errs, began := make([]error, len(one)), make([]bool, len(one))
	var missing, measuring sync.WaitGroup // missing: pairs that have neither connected nor failed
	missing.Add(len(one))
	open := make(chan struct{})
	go func() {
		missing.Wait()
		close(open)
	}()
	for i, r := range one {
		pairs[i] = result.Pair{From: m.Hosts[r.from], To: m.Hosts[r.to]}
		if why := m.refused(ctx, r); why != "" {
			pairs[i].Error = why
			missing.Done()
			continue
		}
		began[i] = true
		measuring.Go(func() {
			arrived := sync.OnceFunc(missing.Done)
			defer arrived()
			pairs[i].Run, errs[i] = m.order(ctx, r, c, func() { arrived(); m.meet(ctx, open) })
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

// pair returns a key for the two hosts that is the same in both directions.
func (r route) pair() route { return route{min(r.from, r.to), max(r.from, r.to)} }

// refused returns why a route is not to be measured, or "" if it is to be measured.
func (m *Mesh) refused(ctx context.Context, r route) string {
	if ctx.Err() != nil {
		return endedEarly
	}
	return cmp.Or(m.mesh.Hosts[r.from].Error, m.mesh.Hosts[r.to].Error, m.slow[r.pair()])
}

// meet waits until each pair of a step has connected or failed, or until a time limit has passed.
func (m *Mesh) meet(ctx context.Context, open <-chan struct{}) {
	timer := time.NewTimer(min(m.Timeout/2, 20*time.Second))
	defer timer.Stop()
	select {
	case <-open:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// orderError is the error if a host could not measure to another host. The host still accepts
// orders.
type orderError struct{ text string }

func (e *orderError) Error() string { return e.text }

// reachError is the error if no control connection to a host could be opened.
type reachError struct{ error }

func (e *reachError) Unwrap() error { return e.error }

// errPairTime is the error if a measurement between two hosts took too long.
var errPairTime = errors.New("gave up")

// order makes the host r.from measure to the host r.to. A host has one order at a time. If the
// pairs of a step begin together, the method order calls the callback meet when this pair is
// connected.
func (m *Mesh) order(ctx context.Context, r route, c *result.Case, meet func()) (*result.Run, error) {
	host := &m.hosts[r.from]
	if host.ctl != nil && closed(host.ctl.gone) { // by the server: it was idle, or made room for another client
		host.ctl.close()
		host.ctl = nil
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
	if err != nil && !errors.As(err, &ordered) { // the conversation cannot continue
		host.ctl.close()
		host.ctl = nil
	}
	return run, err
}

// hang closes the control connection to a host, if there is one.
func (m *Mesh) hang(host int) {
	if k := m.hosts[host].ctl; k != nil {
		k.send(message{Kind: msgBye})
		k.close()
	}
}

// pair sends an order over the control connection and returns the result.
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
