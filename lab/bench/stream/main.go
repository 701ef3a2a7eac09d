//go:build unix

// Command stream measures round trips, or writes in one direction, over rdmanet, udat or TCP on the
// same device. It prints the figures as JSON: times in nanoseconds, and the allocations of this
// process per operation. The peer is a goroutine, or another process, which the command starts.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// work describes what to measure.
type work struct {
	device    string
	size      int
	buffer    int
	checksums bool
	spin      time.Duration
	wire      time.Duration
	warmup    time.Duration
	time      time.Duration
}

// end is one end of a connection.
type end interface {
	send() error // sends a message
	receive() error
	write() error // writes to the stream that the peer takes
	take() error  // reads the stream until it ends
	close() error
}

// kind is a way to connect. The function listen calls the function address with the address that
// dial needs.
type kind struct {
	listen func(w *work, address func(string)) (end, error)
	dial   func(w *work, address string) (end, error)
}

var kinds = map[string]kind{
	"rdmanet": {listenRDMA, dialRDMA}, "udat": {listenDAT, dialDAT}, "udat-polled": {listenPoller, dialPoller},
	"udat-read": {listenReader, dialReader}, "tcp": {listenTCP, dialTCP}, "tcp-polled": {listenPolled, dialPolled},
	"memory": {listenMemory, dialMemory},
}

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stream:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	f := flag.NewFlagSet("stream [flags] rdmanet|udat|udat-polled|udat-read|tcp|tcp-polled|memory ping|call|write",
		flag.ExitOnError)
	w := &work{}
	f.StringVar(&w.device, "device", "loop0", "RDMA device; TCP uses its address")
	f.IntVar(&w.size, "size", 64, "bytes of a message or a write")
	f.IntVar(&w.buffer, "buffer", 0, "bytes of each buffer of rdmanet; 0: its default")
	f.BoolVar(&w.checksums, "checksums", false, "udat on a device tcp: with checksums")
	f.DurationVar(&w.spin, "spin", -1, "udat, rdmanet: for which a wait polls; -1: its default")
	f.DurationVar(&w.wire, "wire", 0, "memory: how long a message is under way")
	f.DurationVar(&w.warmup, "warmup", 50*time.Millisecond, "before it measures")
	f.DurationVar(&w.time, "time", 200*time.Millisecond, "for which it measures")
	ends := f.String("ends", "processes", "where the peer runs: processes, goroutines, or one (goroutine for both; ping)")
	peer := f.Bool("peer", false, "this is the peer's process")
	f.Parse(args)
	if f.NArg() != 2 || w.size < 1 {
		f.Usage()
		return errors.New("a kind and a loop are needed")
	}
	k, known := kinds[f.Arg(0)]
	loop := f.Arg(1)
	if !known || !slices.Contains([]string{"ping", "call", "write"}, loop) {
		return fmt.Errorf("there is no %q %q", f.Arg(0), loop)
	}
	switch {
	case *peer:
		e, err := k.listen(w, func(address string) { fmt.Println(address) })
		if err != nil {
			return err
		}
		return serve(e, loop)
	case *ends == "processes":
		address, stop, err := startPeer(args)
		if err != nil {
			return err
		}
		e, err := k.dial(w, address)
		if err != nil {
			stop()
			return err
		}
		return errors.Join(w.measure(e, nil, loop), e.close(), stop())
	case *ends == "goroutines", *ends == "one" && loop == "ping":
		address, accepted := make(chan string, 1), make(chan error, 1)
		var server end
		go func() {
			var err error
			server, err = k.listen(w, func(a string) { address <- a })
			if err != nil {
				close(address)
			}
			accepted <- err
		}()
		e, err := k.dial(w, <-address)
		if err := errors.Join(err, <-accepted); err != nil {
			return err
		}
		if *ends == "one" {
			return errors.Join(w.measure(e, server, loop), e.close(), server.close())
		}
		served := make(chan error, 1)
		go func() { served <- serve(server, loop) }()
		return errors.Join(w.measure(e, nil, loop), e.close(), <-served)
	}
	return fmt.Errorf("-ends %s: must be processes, goroutines or one", *ends)
}

// startPeer starts this program in a new process as the peer, and returns the peer's address.
func startPeer(args []string) (address string, stop func() error, err error) {
	cmd := exec.Command("/proc/self/exe", append([]string{"-peer"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	limit := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	stop = func() error { defer limit.Stop(); return cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, fmt.Errorf("the peer has no address: %w", errors.Join(err, stop()))
	}
	return strings.TrimSpace(line), stop, nil
}

// caller is an end whose answers another goroutine receives, as clients of HTTP/2 and gRPC do.
type caller struct {
	end
	answers chan error
}

func newCaller(e end) *caller {
	c := &caller{e, make(chan error, 1)}
	go func() {
		var err error
		for err == nil {
			err = e.receive()
			c.answers <- err
		}
	}()
	return c
}

func (c *caller) receive() error { return <-c.answers }

// serve answers each message with a message. In the loop "write" it waits until the connection
// ends.
func serve(e end, loop string) error {
	defer e.close()
	if loop == "write" {
		return e.take()
	}
	for {
		if e.receive() != nil {
			return nil
		}
		if err := e.send(); err != nil {
			return err
		}
	}
}

// measure runs the loop and prints the figures. If peer is not nil, the calling goroutine also
// answers at the peer's end, in each round trip.
func (w *work) measure(e, peer end, loop string) error {
	out := make(map[string]float64)
	begin := time.Now()
	if loop == "write" {
		for time.Since(begin) < w.warmup {
			if err := e.write(); err != nil {
				return err
			}
		}
		n, before, start := 0, mallocs(), time.Now()
		for ; n%16 != 0 || time.Since(start) < w.time; n++ {
			if err := e.write(); err != nil {
				return err
			}
		}
		out["ns"] = float64(time.Since(start)) / float64(n)
		out["allocs"] = float64(mallocs()-before) / float64(n)
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	if loop == "call" {
		e = newCaller(e)
	}
	samples := make([]uint32, 0, 1<<20)
	var before uint64
	for last := begin; ; {
		if err := e.send(); err != nil {
			return err
		}
		if peer != nil {
			if err := errors.Join(peer.receive(), peer.send()); err != nil {
				return err
			}
		}
		if err := e.receive(); err != nil {
			return err
		}
		now := time.Now()
		switch {
		case now.Sub(begin) <= w.warmup:
		case before == 0:
			before = mallocs()
			now = time.Now()
		default:
			samples = append(samples, uint32(now.Sub(last)))
		}
		if last = now; now.Sub(begin) > w.warmup+w.time && len(samples) > 0 || len(samples) == cap(samples) {
			break
		}
	}
	n := len(samples)
	out["allocs"] = float64(mallocs()-before) / float64(n)
	total := 0.0
	for _, ns := range samples {
		total += float64(ns)
	}
	out["mean"], out["trips"] = total/float64(n), float64(n)
	slices.Sort(samples)
	out["p50"], out["p99"] = float64(samples[n/2]), float64(samples[n*99/100])
	return json.NewEncoder(os.Stdout).Encode(out)
}

// mallocs returns the number of allocations that this process has made.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
