package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/godat/godat/rdmanet"
)

// many returns a number of connections or calls, which depends on the fabric. It returns mem on
// mem0, and loop on loop0 and tcp. It returns vm on the virtual machine's soft-RoCE device, and
// half of vm on its soft-iWARP device. A short run gets fewer.
func (r *round) many(mem, loop, vm int) int {
	n := map[string]int{"mem": mem, "loop": loop, "tcp": loop, "rxe": vm, "siw": vm / 2}[r.kind]
	if r.short {
		n = max(n/20, 5)
	}
	return n
}

// runMany calls f n times and returns the first error. At most atOnce calls run at the same time,
// each in a goroutine.
func runMany(n, atOnce int, f func(i int) error) error {
	var next atomic.Int64
	failed := make([]error, atOnce)
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for failed[worker] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					failed[worker] = fmt.Errorf("number %d of %d: %w", i, n, err)
				}
			}
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// endingDials dials with contexts that end at about the time at which the dial succeeds.
func endingDials(r *round, s *echoServer) error {
	began := time.Now()
	for range 5 {
		if err := s.proper(); err != nil {
			return err
		}
	}
	var usual, opened atomic.Int64 // the time that a dial takes, which rises under load; the number of dials that succeed
	usual.Store(int64(time.Since(began) / 5))
	n := r.many(3000, 3000, 200)
	err := runMany(n, 4, func(i int) error {
		now := usual.Load()
		limit := time.Duration(rand.Int64N(2 * now))
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		if i%2 == 0 {
			ctx, cancel = context.WithCancel(context.Background())
			time.AfterFunc(limit, cancel)
		}
		defer cancel()
		began := time.Now()
		c, err := (&rdmanet.Dialer{Device: r.device}).Dial(ctx, "rdma", s.l.Addr().String())
		if err == nil {
			usual.Store((3*now + int64(time.Since(began))) / 4)
			opened.Add(1)
			return c.Close()
		}
		if ctx.Err() != nil || errors.Is(err, syscall.ETIMEDOUT) {
			usual.Add(now / 20)
			return nil
		}
		return err
	})
	if k := int(opened.Load()); err == nil && !r.short && (k < n/100 || k > n*99/100) {
		err = fmt.Errorf("%d of %d dials succeed: the moments are wrong", k, n)
	}
	return err
}

// The constant hardly is the time limit of calls that keep a slow machine busy. On a slow machine a
// listener gives up connections whose peers get no processor for the first message, and Dial tries
// again.
const hardly = 5 * time.Minute

// burst dials many times at once.
func burst(r *round, s *echoServer) error {
	n := r.many(4000, 4000, 300)
	err := runMany(n, n, func(i int) error {
		c, err := s.dial(hardly)
		if err != nil {
			return err
		}
		return errors.Join(echoed(c, byte(i)), c.Close())
	})
	if err != nil {
		return err
	}
	return s.allEnded(n)
}

// open opens many connections, which are all open at the same time.
func open(r *round, s *echoServer) error {
	n := r.many(10_000, 2_000, 300)
	conns := make([]*rdmanet.Conn, n)
	err := runMany(n, 16, func(i int) (err error) {
		conns[i], err = s.dial(10 * time.Minute)
		return err
	})
	for range 2 {
		err = errors.Join(err, runMany(n, 16, func(i int) error {
			if conns[i] == nil {
				return nil
			}
			return echoed(conns[i], byte(i))
		}))
	}
	for _, c := range conns {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if err != nil {
		return err
	}
	return s.allEnded(n)
}

// closeBesideAll makes all kinds of calls at once while three goroutines close the connection. All
// calls must end, and exactly one Close must succeed.
func closeBesideAll(r *round, s *echoServer) error {
	return runMany(r.many(100, 50, 20), 1, func(i int) error {
		c, err := s.dial(0)
		if err != nil {
			return err
		}
		defer c.Close()
		calls := []func() error{
			func() error { _, err := c.Read(make([]byte, 100)); return err },
			func() error { _, err := c.Read(make([]byte, 50_000)); return err },
			func() error { _, err := c.Write(make([]byte, 100)); return err },
			func() error { _, err := c.Write(make([]byte, 50_000)); return err },
			func() error { _, err := c.WriteTo(io.Discard); return err },
			func() error { _, err := c.ReadFrom(strings.NewReader(strings.Repeat("x", 5000))); return err },
			func() error {
				region, err := c.NewRegion(make([]byte, 5000), rdmanet.PeerReads)
				if err != nil {
					return err
				}
				_, err = c.WriteRegion(region, 0, 5000)
				region.Close()
				return err
			},
			func() error { return c.SetDeadline(time.Now().Add(time.Minute)) },
			func() error { return c.SetReadBuffer(64 << 10) },
			func() error { c.Stats(); return nil },
		}
		if i%2 == 1 {
			calls = append(calls, c.CloseWrite, c.CloseRead)
		}
		var all sync.WaitGroup
		var over atomic.Bool
		for _, call := range calls {
			all.Go(func() {
				for !over.Load() {
					if err := call(); errors.Is(err, net.ErrClosed) {
						return
					}
				}
			})
		}
		var closed atomic.Int64
		for range 3 {
			pause := time.Duration(r.random.IntN(20)) * time.Millisecond
			all.Go(func() {
				time.Sleep(pause)
				if err := c.Close(); err == nil {
					closed.Add(1)
				} else if !errors.Is(err, net.ErrClosed) {
					closed.Add(100)
				}
				over.Store(true)
			})
		}
		all.Wait()
		if n := closed.Load(); n != 1 {
			return fmt.Errorf("%d of 3 calls of Close have closed the connection", n)
		}
		return nil
	})
}

// patient continues to read and write after a deadline has passed.
type patient struct{ c *rdmanet.Conn }

func (p patient) Read(b []byte) (n int, err error) {
	for {
		if n, err = p.c.Read(b); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

func (p patient) Write(b []byte) (total int, err error) {
	for {
		n, err := p.c.Write(b[total:])
		if total += n; !errors.Is(err, os.ErrDeadlineExceeded) {
			return total, err
		}
	}
}

// deadlines moves the deadlines of a stream at random. No byte may be lost or doubled.
func deadlines(r *round) error {
	p, err := r.partner("traffic", 0)
	if err != nil {
		return err
	}
	defer p.close()
	s := startStream(p.c, struct{ io.Reader }{patient{p.c}}, struct{ io.Writer }{patient{p.c}}, p.seed, p.dialed)
	set := []func(time.Time) error{p.c.SetDeadline, p.c.SetReadDeadline, p.c.SetWriteDeadline}
	for until := time.Now().Add(2 * time.Second); err == nil && time.Now().Before(until); {
		at := time.Now().Add(time.Duration(r.random.IntN(3000)-1000) * time.Microsecond)
		switch r.random.IntN(4) {
		case 0:
			at = time.Time{}
		case 1:
			at = at.Round(0) // without monotonic time
		}
		err = set[r.random.IntN(len(set))](at)
		time.Sleep(time.Duration(r.random.IntN(1000)) * time.Microsecond)
	}
	err = errors.Join(err, p.c.SetDeadline(time.Time{}))
	r.began = time.Now()
	return errors.Join(err, complete(r, p, s))
}

// shutdown shuts down an HTTP server whose clients do not read their answers.
func shutdown(r *round) error {
	l, err := listenOn(r.device, rdmanet.ListenConfig{})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("x", 1<<20))
	})}
	go server.Serve(l)
	defer server.Close()
	for range r.many(50, 50, 10) {
		c, err := (&rdmanet.Dialer{Device: r.device}).Dial(context.Background(), "rdma", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil { // but the client never reads
			return err
		}
	}
	time.Sleep(500 * time.Millisecond)
	r.began = time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("server shutdown: %w", err)
	}
	server.Close()
	if took := time.Since(r.began); took > soon {
		return fmt.Errorf("calls of Shutdown for 1 s and of Close take %v", took)
	}
	return nil
}

// The map once contains the numbers of rounds for scenarios whose function repeats its operations
// itself.
var once = map[string][2]int{"mem": {1, 10}, "loop": {1, 10}, "tcp": {1, 10}, "rxe": {1, 5}, "siw": {1, 3}}

var streamCallerRows = []scenario{
	rdmanetRow("Dial whose context ends as it succeeds: 3,000, in the virtual machine 200",
		"a connection or the context's error; all is given back", served(rdmanet.ListenConfig{}, endingDials), once),
	rdmanetRow("4,000 dials at once, in the virtual machine 300", "all succeed",
		served(rdmanet.ListenConfig{}, burst), once).slow(),
	rdmanetRow("10,000 connections on mem0, 2,000 on loop0 and tcp, 300 in the virtual machine",
		"each carries data; all is given back", served(rdmanet.ListenConfig{}, open), once).slow(),
	rdmanetRow("Close by three goroutines beside all other methods", "every call ends; one Close has closed it",
		served(rdmanet.ListenConfig{}, closeBesideAll), once),
	rdmanetRow("deadlines that move at random under traffic", "no byte is lost or doubled", deadlines,
		withMem(2, 20, seldom)),
	rdmanetRow("http.Server.Shutdown with clients that have hung", "Shutdown ends with its context, Close at once",
		shutdown, once),
}
