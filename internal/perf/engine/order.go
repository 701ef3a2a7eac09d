package engine

import (
	"context"
	"net"

	"github.com/godat/godat/internal/perf/result"
)

// carryOut carries out the order in m: it connects to another server, as that server's client, and
// measures the case. If m.Together is set, it sends msgReady to the client that gave the order once
// it is connected, and begins when that client sends msgGo. It stops when that client disconnects.
func carryOut(ctx context.Context, k *control, m *message,
	dial func(ctx context.Context, address string) (net.Conn, error), cl *Client) (*result.Run, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-k.gone:
			cancel(k.err)
		case <-ctx.Done():
		}
	}()
	plan := Plan{Cases: []result.Case{*m.Case}, Repeats: 1}
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	if m.Together {
		cl.start = func(ctx context.Context) error {
			if err := k.send(message{Kind: msgReady}); err != nil {
				return err
			}
			_, err := k.expectFor(setupTime, ctx.Done(), msgGo)
			return err
		}
	}
	conn, err := dial(ctx, m.Peer)
	if err != nil {
		return nil, err
	}
	doc, err := cl.Run(ctx, conn, plan)
	if err != nil {
		return nil, err
	}
	return &doc.Runs[0], nil
}
