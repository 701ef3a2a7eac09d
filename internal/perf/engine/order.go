package engine

import (
	"context"
	"net"

	"github.com/godat/godat/internal/perf/result"
)

// carryOut measures the case that a client has ordered in m, as the client of another server. If
// m.Together is set, it sends msgReady when it is connected, and begins when the client sends
// msgGo. It stops when the client disconnects.
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
