package engine

import (
	"context"
	"net"

	"github.com/godat/godat/internal/perf/result"
)

// carryOut executes an order, the message m: it connects to the server m.Peer as a client, and
// measures the case. The argument k is the control connection to the client that gave the order. If
// m.Together is set, carryOut sends msgReady on k when it is connected to m.Peer, and begins when
// msgGo arrives on k. It stops when k is closed.
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
