package main

import (
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/godat/godat/internal/perf/engine"
)

func (a *app) server(args []string) error {
	f := a.flags("server", "", "Serve clients, any number at the same time, until interrupted. The clients say what to measure.")
	device := f.String("device", "", "verbs device, or its IP address (default: the one that a client's connection came to, or the first active one)")
	port := f.Int("port", engine.DefaultPort, "TCP port of the control connection")
	bind := f.String("bind", "", "local address to listen on (default: all)")
	if err := parse(f, args, 0, ""); err != nil {
		return err
	}
	if err := checkPort(*port); err != nil {
		return err
	}
	var mu sync.Mutex
	s := &engine.Server{Device: *device, Version: buildVersion(), Log: func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(a.stdout, text)
	}}
	facts, err := s.Check()
	if err != nil {
		return err
	}
	if facts.Fabric == "mem" {
		return fmt.Errorf("%s: a server needs a verbs device (%s); mem0 is inside one process, where datperf local measures it", facts.Device, facts.Chosen)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(*bind, strconv.Itoa(*port)))
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "datperf %s serves on %v; %s (%s)", buildVersion(), ln.Addr(), facts.Device, facts.Detail)
	if *device == "" {
		fmt.Fprintf(a.stdout, ", because %s, unless a client comes by another device's address", facts.Chosen)
	}
	fmt.Fprintln(a.stdout)
	if err := s.Serve(a.ctx, ln); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, "interrupted, all clients are told")
	return nil
}
