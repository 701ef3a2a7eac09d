package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godat/godat/rdmanet"
)

// echoServer sends back the bytes that each connection receives.
type echoServer struct {
	r    *round
	l    *rdmanet.Listener
	done sync.WaitGroup

	mu     sync.Mutex
	errors []error // temporary errors of Accept
	ends   []error // results of the connections that have ended, nil if in order
}

func (s *echoServer) address() netip.AddrPort { return netip.MustParseAddrPort(s.l.Addr().String()) }

func (r *round) serve(lc rdmanet.ListenConfig) (*echoServer, error) {
	l, err := listenOn(r.device, lc)
	if err != nil {
		return nil, err
	}
	s := &echoServer{r: r, l: l}
	s.run()
	return s, nil
}

// run accepts connections until the listener fails.
func (s *echoServer) run() {
	s.done.Go(func() {
		for {
			c, err := s.l.AcceptConn()
			if temporary, ok := errors.AsType[interface {
				Temporary() bool
				error
			}](err); ok && temporary.Temporary() {
				s.mu.Lock()
				s.errors = append(s.errors, err)
				s.mu.Unlock()
				continue
			}
			if err != nil {
				return
			}
			s.done.Go(func() {
				_, err := io.Copy(c, c)
				s.mu.Lock()
				s.ends = append(s.ends, err)
				s.mu.Unlock()
				c.Close()
			})
		}
	})
}

// dial connects to the server. The argument deadline limits the time of the dial. It is also how
// long the connection can be used after the dial.
func (s *echoServer) dial(deadline time.Duration) (*rdmanet.Conn, error) {
	d := rdmanet.Dialer{Device: s.r.device, Timeout: deadline}
	c, err := d.Dial(context.Background(), "rdma", s.l.Addr().String())
	if err == nil {
		err = c.SetDeadline(time.Now().Add(deadline))
	}
	return c, err
}

// echoed sends a few bytes and expects them back.
func echoed(c *rdmanet.Conn, n byte) error {
	text := []byte{'h', 'e', 'l', 'l', n}
	if _, err := c.Write(text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != string(text) {
		return fmt.Errorf("%q comes back as %q", text, got)
	}
	return nil
}

// proper runs a well-behaved client, which must be served.
func (s *echoServer) proper() error { return s.properWithin(patience) }

func (s *echoServer) properWithin(limit time.Duration) error {
	c, err := s.dial(limit)
	if err != nil {
		return err
	}
	defer c.Close()
	return echoed(c, '!')
}

// eventually waits until cond returns true. If that takes longer than limit, eventually returns an
// error. The parameter what is part of the error's text.
func eventually(limit time.Duration, what string, cond func() bool) error {
	for until := time.Now().Add(limit); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			return fmt.Errorf("not after %v: %s", limit, what)
		}
	}
	return nil
}

// ended waits until a connection has ended with an error that contains the text.
func (s *echoServer) ended(text string) error {
	return eventually(patience, fmt.Sprintf("the server's connection ends with %q", text), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.ContainsFunc(s.ends, func(err error) bool { return err != nil && strings.Contains(err.Error(), text) })
	})
}

// allEnded waits until n connections have ended. It waits at most 12 s. It returns the errors with
// which connections have ended.
func (s *echoServer) allEnded(n int) error {
	known := func() []error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(s.ends)
	}
	err := eventually(promptly, fmt.Sprintf("the ends of %d connections that have been closed", n), func() bool {
		return len(known()) >= n
	})
	return errors.Join(append(known(), err)...)
}

// forget drops the results of the connections that have ended.
func (s *echoServer) forget() {
	s.mu.Lock()
	s.ends = nil
	s.mu.Unlock()
}

// The constant promptly is less than the 15 s after which a listener gives up every silent peer.
const promptly = 12 * time.Second

// settled waits until no request is unanswered and no connection is being set up.
func (s *echoServer) settled(limit time.Duration) error {
	return eventually(limit, "no request and no connection in the making", func() bool {
		st := s.l.Stats()
		return st.InMaking == 0 && st.Unanswered == 0
	})
}

// close ends the server and waits for all of its connections.
func (s *echoServer) close() {
	s.l.Close()
	s.done.Wait()
}

// served returns the function of a scenario with clients of an echo server. When runClients has
// returned, a proper client must be served.
func served(lc rdmanet.ListenConfig, runClients func(r *round, s *echoServer) error) func(*round) error {
	return func(r *round) error {
		s, err := r.serve(lc)
		if err != nil {
			return err
		}
		defer s.close()
		if err := runClients(r, s); err != nil {
			return fmt.Errorf("%w; the listener: %+v", err, s.l.Stats())
		}
		if err := s.proper(); err != nil {
			return fmt.Errorf("the proper client after all: %w", err)
		}
		return nil
	}
}
