package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// ask returns the facts of a host. While the host cannot be reached, ask tries again, for at most
// m.Wait.
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
	facts, err := m.greet(ctx, k, cases)
	if err != nil {
		k.close()
		return nil, nil, err
	}
	return k, facts, nil
}

func (m *Mesh) greet(ctx context.Context, k *control, cases int) (*result.Facts, error) {
	if err := k.send(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Version: m.Version,
		Cases: cases}); err != nil {
		return nil, err
	}
	k.live(nil)
	welcome, err := k.expectFor(min(helloTime, m.Timeout), ctx.Done(), msgWelcome)
	if err != nil {
		return nil, err
	}
	if welcome.Magic != magic || welcome.Protocol != Protocol {
		return nil, fmt.Errorf("the server speaks protocol %d, this client %d: use the same version of datperf everywhere",
			welcome.Protocol, Protocol)
	}
	return readRaw[result.Facts](welcome.Facts)
}
