package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/godat/godat/internal/perf/report"
)

// servePrometheus serves GET /metrics on an address until the returned function is called.
func servePrometheus(address string, p *report.Prometheus, stderr io.Writer) (stop func() error, err error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usagef("--prometheus %q: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		p.WriteText(w)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	fmt.Fprintf(stderr, "metrics for Prometheus: http://%v/metrics\n", ln.Addr())
	return func() error {
		err := srv.Close()
		if e := <-done; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}
