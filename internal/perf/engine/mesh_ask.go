package engine

import (
	"context"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// ask returns the facts of a host. While the host cannot be reached, the method tries again, for at
// most m.Wait.
func (m *Mesh) ask(ctx context.Context, address string) result.MeshHost {
	h := result.MeshHost{Address: address}
	k, facts, err := m.open(ctx, address, 0)
	for until := time.Now().Add(m.Wait); err != nil && time.Now().Before(until) && ctx.Err() == nil; {
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
		k, facts, err = m.open(ctx, address, 0)
	}
	if err != nil {
		h.Error = err.Error()
		return h
	}
	defer k.close()
	k.send(message{Kind: msgBye})
	h.Facts = facts
	return h
}

// open connects to a host and exchanges hellos. It returns the control connection and the host's
// facts.
func (m *Mesh) open(ctx context.Context, address string, cases int) (*control, *result.Facts, error) {
	conn, err := m.Dial(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	k := newControl(conn, "server")
	facts, err := k.greet(ctx, min(helloTime, m.Timeout), message{Version: m.Version, Cases: cases}, nil)
	if err != nil {
		k.close()
		return nil, nil, err
	}
	return k, facts, nil
}
