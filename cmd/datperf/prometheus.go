package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/godat/godat/internal/perf/engine"
)

// Limits of the HTTP server for the metrics. metricsConns is the largest number of connections;
// when one more arrives, the server closes the oldest. metricsTime limits each request, each
// response, and the idle time between two requests.
const (
	metricsConns = 64
	metricsTime  = 5 * time.Second
)

// servePrometheus serves GET /metrics on an address until stop is called. If the function ready is
// not nil, it also serves GET /ready. The status is 200 if ready returns nil. Otherwise the status
// is 503, and the body is the text of the error.
func servePrometheus(address string, write func(io.Writer) error, ready func() error,
	stderr io.Writer) (stop func() error, err error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, usagef("--prometheus %q: %w", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		write(w)
	})
	if ready != nil {
		mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
			if err := ready(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ready")
		})
	}
	lobby := engine.Lobby{Size: metricsConns}
	enter := func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			lobby.Enter(conn)
		case http.StateClosed, http.StateHijacked:
			lobby.Leave(conn)
		}
	}
	srv := &http.Server{Handler: mux, ConnState: enter, ReadHeaderTimeout: metricsTime, ReadTimeout: metricsTime,
		WriteTimeout: metricsTime, IdleTimeout: metricsTime, MaxHeaderBytes: 16 << 10}
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

// writeStats writes a server's figures in the text format of Prometheus.
func writeStats(w io.Writer, s engine.Stats) (err error) {
	for _, m := range []struct {
		name, kind, help string
		value            int64
	}{
		{"clients", "gauge", "Clients that are being served.", int64(s.Clients)},
		{"clients_limit", "gauge", "Clients that can be served at the same time.", int64(s.MaxClients)},
		{"clients_total", "counter", "Clients that were let in.", s.Served},
		{"client_errors_total", "counter", "Conversations that ended with an error, also of strangers.", s.Failed},
		{"cases_total", "counter", "Cases that were measured.", s.Cases},
		{"memory_bytes", "gauge", "Memory of the cases of all clients.", s.MemoryBytes},
		{"memory_limit_bytes", "gauge", "Its limit.", s.MaxMemoryBytes},
	} {
		name := "datperf_server_" + m.name
		_, e := fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %d\n", name, m.help, name, m.kind, name, m.value)
		err = errors.Join(err, e)
	}
	return err
}
