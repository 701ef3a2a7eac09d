package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Server takes clients and does what their plans say, any number of them at the same time.
type Server struct {
	Device  string            // that clients measure; empty: the one with the address that the client came to, or the best
	Version string            // of datperf
	Log     func(text string) // one line for people; may be nil
	Clients int               // to serve; 0: any number, until interrupted
	CPU     *int              // to pin the measuring loops to
	MayQuit bool              // when a client says so

	chosen   *choice // already, by Local
	quitting chan struct{}
	quit     sync.Once
}

// DefaultPort is the port of the control connection.
const DefaultPort = 18516

// Check tells whether the server has a device to serve with, and which.
func (s *Server) Check() (result.Facts, error) {
	chosen, err := choose(s.Device, netip.Addr{})
	if err != nil {
		return result.Facts{}, err
	}
	return gatherFacts(chosen, s.Version, s.CPU), nil
}

// Serve takes clients until ctx is done, ends their runs then, and closes the listener. A client's quit closes the listener too, but lets
// other clients come to their end.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	s.quitting = make(chan struct{})
	served := make(chan struct{})
	defer close(served)
	go func() {
		select {
		case <-s.quitting:
			ln.Close()
		case <-served:
		}
	}()
	defer ln.Close()
	var clients sync.WaitGroup
	defer clients.Wait()
	for n := 1; ; n++ {
		conn, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || s.isQuitting() {
				return nil
			}
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() { // out of descriptors, for example
				s.log("%v", err)
				time.Sleep(100 * time.Millisecond)
				n--
				continue
			}
			return err
		}
		clients.Go(func() { s.serve(ctx, conn) })
		if n == s.Clients {
			return nil
		}
	}
}

func (s *Server) log(format string, args ...any) {
	if s.Log != nil {
		s.Log(fmt.Sprintf(format, args...))
	}
}

// serve has one conversation.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(errShutdown) })()
	k := newControl(conn, "client")
	defer k.close()
	who := "client"
	if a := conn.RemoteAddr(); a.Network() != "pipe" {
		who = "client " + a.String()
	}
	cases, err := s.converse(ctx, k, who)
	switch {
	case err == nil:
		s.log("%s: done, %d cases", who, cases)
	case ctx.Err() != nil:
		k.fail(errShutdown)
		s.log("%s: ended, this server is shutting down", who)
	default:
		k.fail(err)
		s.log("%s: %v", who, err)
	}
}

var errShutdown = errors.New("the server is shutting down")

func (s *Server) converse(ctx context.Context, k *control, who string) (cases int, err error) {
	hello, err := k.expect(ctx.Done(), msgHello)
	if err != nil {
		return 0, err
	}
	if hello.Magic != magic {
		return 0, errors.New("not a datperf client")
	}
	if hello.Protocol != Protocol {
		return 0, fmt.Errorf("this server is %s with protocol %d, the client is %s with protocol %d: use the same version at both ends",
			orUnknown(s.Version), Protocol, orUnknown(hello.Version), hello.Protocol)
	}
	chosen, err := s.choose(k.localAddr())
	if err != nil {
		return 0, err
	}
	facts := gatherFacts(chosen, s.Version, s.CPU)
	if err := k.send(message{Kind: msgWelcome, Magic: magic, Protocol: Protocol, Version: s.Version, Facts: &facts}); err != nil {
		return 0, err
	}
	s.log("%s: %d cases on %s (%s)", who, hello.Cases, chosen.Name, chosen.why)
	ses := &session{ctl: k, chosen: chosen, cpu: s.CPU}
	for {
		m, err := k.expectIdle(ctx.Done(), msgCase, msgBye, msgQuit, msgFinish)
		switch {
		case err != nil || m.Kind == msgBye:
			return cases, err
		case m.Kind == msgFinish: // too late: the run was over
			continue
		case m.Kind == msgQuit && (!s.MayQuit || s.quitting == nil):
			return cases, errors.New("this server does not quit for a client: it was not started with --allow-quit")
		case m.Kind == msgQuit:
			s.log("%s: this server shall quit; it takes no more clients", who)
			s.quit.Do(func() { close(s.quitting) })
			return cases, k.send(message{Kind: msgBye})
		}
		if m.Case == nil {
			return cases, errors.New("a case message without a case")
		}
		if _, _, err := ses.run(ctx, m.Case); err != nil {
			return cases, fmt.Errorf("%s: %w", m.Case.Name(), err)
		}
		cases++
	}
}

func (s *Server) choose(local netip.Addr) (choice, error) {
	if s.chosen != nil {
		return *s.chosen, nil
	}
	return choose(s.Device, local)
}

func orUnknown(version string) string {
	if version == "" {
		return "datperf of unknown version"
	}
	return "datperf " + strings.TrimPrefix(version, "datperf ")
}

// expectIdle is expect for the client's next case, for which there is no hurry.
func (k *control) expectIdle(stop <-chan struct{}, kinds ...string) (message, error) {
	select {
	case m, ok := <-k.in:
		if !ok {
			if errors.Is(k.err, io.EOF) {
				return m, fmt.Errorf("the client has gone before the end of its plan")
			}
			return m, k.err
		}
		return m, k.judge(m, kinds...)
	case <-stop:
		return message{}, errStopped
	}
}

func (s *Server) isQuitting() bool {
	select {
	case <-s.quitting:
		return true
	default:
		return false
	}
}

// Quit asks the server at the other end of a control connection, which it closes, to take no more clients.
func Quit(ctx context.Context, conn net.Conn, version string) error {
	k := newControl(conn, "server")
	defer k.close()
	if err := k.send(message{Kind: msgHello, Magic: magic, Protocol: Protocol, Version: version}); err != nil {
		return err
	}
	if _, err := k.expect(ctx.Done(), msgWelcome); err != nil {
		return err
	}
	if err := k.send(message{Kind: msgQuit}); err != nil {
		return err
	}
	_, err := k.expect(ctx.Done(), msgBye)
	return err
}
