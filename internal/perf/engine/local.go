package engine

import (
	"context"
	"net"
	"net/netip"

	"github.com/godat/godat/internal/perf/result"
)

// Local runs a plan with both ends in this process. If serverCPU is not nil, the server's loop is
// pinned to that processor.
func Local(ctx context.Context, cl *Client, serverCPU *int, plan Plan) (*result.Document, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, b := net.Pipe()
	chosen, err := cl.choose(netip.Addr{})
	if err != nil {
		a.Close()
		b.Close()
		return nil, err
	}
	srv := &Server{Setup: cl.Setup}
	srv.chosen, srv.CPU = &chosen, serverCPU
	served := make(chan struct{})
	go func() {
		defer close(served)
		srv.serve(ctx, b)
	}()
	doc, err := cl.Run(ctx, a, plan)
	if err != nil {
		cancel()
	}
	<-served
	return doc, err
}
