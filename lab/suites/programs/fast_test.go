package programs

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

func serveFast() (string, func() error, error) {
	l, err := listen()
	if err != nil {
		return "", nil, err
	}
	s := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.SetBody(ctx.PostBody()) }}
	go s.Serve(l)
	return l.Addr().String(), s.Shutdown, nil
}

func useFast(t *testing.T, address string) {
	plain := &fasthttp.HostClient{Addr: address, MaxConns: 16}
	pipeline := &fasthttp.PipelineClient{Addr: address, MaxConns: 2, MaxPendingRequests: 64}
	for name, do := range map[string]func(*fasthttp.Request, *fasthttp.Response, time.Time) error{
		"plain": plain.DoDeadline, "pipeline": pipeline.DoDeadline,
	} {
		parallel(t, 16, func(i int) error {
			for k := range 30 {
				q, a := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
				body := pattern(sizes[k%len(sizes)], i)
				q.SetRequestURI("http://" + address + "/")
				q.Header.SetMethod("POST")
				q.SetBody(body)
				if err := do(q, a, time.Now().Add(patience)); err != nil || !bytes.Equal(a.Body(), body) {
					return fmt.Errorf("%s, %d bytes: %d come back, %w", name, len(body), len(a.Body()), err)
				}
				fasthttp.ReleaseRequest(q)
				fasthttp.ReleaseResponse(a)
			}
			return nil
		})
	}
	plain.CloseIdleConnections()
}
