package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godat/godat/rdmanet"
)

// serveLimited is the main function of a server process that reaches a limit. The argument is the
// device. serveLimited writes the server's address. Then it reads lines from in, and for each line
// it writes the errors that Accept has returned. After the line "descriptors" the process can open
// one descriptor beyond those that it has, after the line "none" none, and after the line "enough"
// as many as before.
func serveLimited(args []string, in io.Reader, out io.Writer) error {
	r := &round{runner: &runner{device: args[0]}}
	s, err := r.serve(rdmanet.ListenConfig{ReadBuffer: 64 << 10, WriteBuffer: 64 << 10})
	if err != nil {
		return err
	}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	err = encoder.Encode(s.l.Addr().String())
	var text string
	enough := func() error { return nil }
	for err == nil && decoder.Decode(&text) == nil {
		switch text {
		case "descriptors":
			_, err = descriptorsLeft(0)
		case "none":
			enough, err = limitDescriptors(3) // those of the standard files
		case "enough":
			err = enough()
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		err = encoder.Encode(fmt.Sprint(len(s.errors), " errors: ", errors.Join(s.errors...)))
		s.mu.Unlock()
	}
	return err
}

// limitedServer is a process that runs serveLimited.
type limitedServer struct {
	partner
	device, address string
}

// startLimited starts the process after the given commands of its shell. The caller must close the
// server, even after an error.
func startLimited(r *round, commands string) (*limitedServer, error) {
	s := &limitedServer{partner: partner{role: "server"}, device: r.device}
	err := s.startProcess(commands, []string{r.device})
	if err == nil {
		err = s.said(s.answers.Decode(&s.address))
	}
	return s, err
}

// ask sends the server a line, and returns its answer.
func (s *limitedServer) ask(what string) (answer string, err error) {
	err = s.said(errors.Join(s.tell(what), s.answers.Decode(&answer)))
	return answer, err
}

// said adds what the server has written to its standard error.
func (s *limitedServer) said(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %s", err, s.errors.b)
	}
	return err
}

func (s *limitedServer) dial(timeout time.Duration) (*rdmanet.Conn, error) {
	return (&rdmanet.Dialer{Device: s.device, Timeout: timeout}).Dial(context.Background(), "rdma", s.address)
}

// limited returns the function of a scenario: it connects to a server in another process until the
// server reaches a limit. The parameter commands contains shell commands that run before the
// server. The parameter what, unless empty, is a line that the server gets once it has a
// connection. The errors of Dial and Accept must contain one of the texts in names. After the
// errors, the server and the client must go on.
func limited(commands, what string, names ...string) func(*round) error {
	named := func(text string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) })
	}
	return func(r *round) error {
		s, err := startLimited(r, commands)
		defer s.close()
		if err != nil {
			return err
		}
		dial := func() (*rdmanet.Conn, error) {
			c, err := s.dial(3 * time.Second)
			if err != nil {
				return nil, err
			}
			if err := errors.Join(c.SetDeadline(time.Now().Add(patience)), echoed(c, 'l')); err != nil {
				c.Close()
				return nil, fmt.Errorf("a connection that was accepted: %w", err)
			}
			return c, nil
		}
		var conns []*rdmanet.Conn
		closeAll := func() {
			for _, c := range conns {
				c.Close()
			}
			conns = nil
		}
		defer closeAll()
		if what != "" {
			c, err := dial()
			if err != nil {
				return err
			}
			conns = append(conns, c)
			if _, err := s.ask(what); err != nil {
				return err
			}
		}
		var mu sync.Mutex
		refusal := runMany(2000, 4, func(int) error {
			c, err := dial()
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				conns = append(conns, c)
			}
			return err
		})
		if refusal == nil || !named(refusal.Error()) && !strings.Contains(refusal.Error(), "insufficient resources") {
			return fmt.Errorf("after %d connections: %w", len(conns), refusal)
		}
		if len(conns) == 0 {
			return fmt.Errorf("no connection at all: %w", refusal)
		}
		closeAll()
		var last error
		if err := eventually(patience, "connections again, below the limit", func() bool {
			var c *rdmanet.Conn
			if c, last = dial(); last == nil {
				conns = append(conns, c)
			}
			return last == nil
		}); err != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
		text, err := s.ask("errors")
		if err != nil {
			return err
		}
		if !named(text) {
			return fmt.Errorf("accepted %q, wanted one of %q", text, names)
		}
		return nil
	}
}

// starved connects to a server in another process that may open no descriptors. Accept must name
// the limit, and the connection that was there must go on. The server must accept again as soon as
// it may open descriptors.
func starved(r *round) error {
	s, err := startLimited(r, "")
	defer s.close()
	if err != nil {
		return err
	}
	first, err := s.dial(patience)
	if err != nil {
		return err
	}
	defer first.Close()
	if _, err := s.ask("none"); err != nil {
		return err
	}
	if err := first.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if c, err := s.dial(time.Second); !errors.Is(err, context.DeadlineExceeded) {
		if err == nil {
			c.Close()
		}
		return fmt.Errorf("a Dial of 1 s to a server without descriptors ends with %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		c, err := s.dial(patience)
		if err == nil {
			err = errors.Join(echoed(c, 'w'), c.Close())
		}
		waiting <- err
	}()
	var text string
	if err := eventually(patience, "the limit from Accept", func() bool {
		text, err = s.ask("errors")
		return err != nil || strings.Contains(text, "RLIMIT_NOFILE")
	}); err != nil {
		return fmt.Errorf("%w: %q", err, text)
	}
	if err != nil {
		return err
	}
	if err := echoed(first, 'f'); err != nil {
		return fmt.Errorf("the connection that was there: %w", err)
	}
	r.began = time.Now()
	if _, err := s.ask("enough"); err != nil {
		return err
	}
	return <-waiting
}

// clockSteps changes the host's clock in steps, under traffic and while a Read has a deadline.
func clockSteps(r *round, p *partner, s *stream) error {
	server, err := r.serve(rdmanet.ListenConfig{})
	if err != nil {
		return err
	}
	defer server.close()
	c, err := server.dial(patience)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, by := range []string{"1 hour", "1 hour ago", "1 hour ago", "1 hour"} {
		for _, monotonic := range []bool{true, false} {
			began := time.Now()
			deadline := began.Add(2 * time.Second)
			if !monotonic {
				deadline = deadline.Round(0)
			}
			if err := c.SetReadDeadline(deadline); err != nil {
				return err
			}
			ended := make(chan error, 1)
			go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
			if err := r.runHere(`date -s "$(date) ` + by + `"`); err != nil {
				return err
			}
			err := <-ended
			if took := time.Since(began); took < time.Second || took > soon || err == nil {
				return fmt.Errorf("a clock step of %q: a Read with a deadline of 2 s ends after %v: %w", by, took, err)
			}
		}
	}
	return complete(r, p, s)
}

// spoiled returns the function of a scenario with traffic over a network that netem disturbs. The
// disturbance lasts until 5 s have passed and 100 KB have gone each way.
func spoiled(how string) func(*round) error {
	return streamed(0, func(r *round, p *partner, s *stream) error {
		reset, err := r.spoil(how)
		if err != nil {
			return err
		}
		before := s.c.Stats()
		time.Sleep(5 * time.Second)
		err = eventually(5*time.Minute, "100 KB each way", func() bool {
			now := s.c.Stats()
			return s.lost.Load() || now.BytesRead > before.BytesRead+100_000 && now.BytesSent > before.BytesSent+100_000
		})
		spoiled := s.c.Stats()
		if resetErr := reset(); resetErr != nil {
			return errors.Join(err, resetErr)
		}
		r.began = time.Now()
		if err != nil {
			err = fmt.Errorf("%w: first %+v, then %+v", err, before, spoiled)
		}
		return errors.Join(err, complete(r, p, s))
	})
}

func spoiledRow(name, how string, notOn ...string) scenario {
	return rdmanetRow("wire: "+name, "no error; each end has all that the other has sent", spoiled(how),
		map[string][2]int{"siw": {1, 4}, "cable": {1, 4}, "tcphosts": {1, 4}}, append(notOn, "rxe: "+inDriver)...).slow()
}

// lessLocked are shell commands that limit locked memory, and take away the right to exceed the
// limit.
const lessLocked = "ulimit -l 1024; set -- \"$0\" -stream \"$@\"; exec setpriv --bounding-set=-ipc_lock \"$@\"; "

var inVM = map[string][2]int{"rxe": {1, 5}, "siw": {1, 3}}

// inVMAndTCP are the rounds of rows that run in the virtual machine, and on this host with tcp.
var inVMAndTCP = map[string][2]int{"tcp": {1, 20}, "rxe": {1, 5}, "siw": {1, 3}}

const atLimit = "Dial fails with the reason, Accept with the name of the limit; then both go on"

var streamLimitRows = []scenario{
	rdmanetRow("descriptors of a server", atLimit, limited("", "descriptors", "open files", "RLIMIT_NOFILE"),
		inVMAndTCP).slow(),
	rdmanetRow("a listener without descriptors", "Accept names the limit; connections go on; those that wait "+
		"are accepted when there are descriptors again", starved, map[string][2]int{"tcp": {2, 20}},
		"rxe: a request needs none", "siw: a request needs none", "loop: a request needs none"),
	rdmanetRow("locked memory of a server", atLimit, limited(lessLocked, "", "RLIMIT_MEMLOCK"), inVM,
		"tcp: locks none").slow(),
	rdmanetRow("memory: a Go heap of 16 MiB (GOMEMLIMIT), and too little address space (RLIMIT_AS) for the buffers",
		"the connections keep small buffers, and all bytes arrive; the log and the errors name the limit",
		ownMemory, map[string][2]int{"mem": {1, 10}, "loop": {1, 10}, "tcp": {1, 10}}),
	rdmanetRow("steps of the host's clock by an hour, forth and back",
		"no error; deadlines end calls when they should", streamed(0, clockSteps),
		map[string][2]int{"rxe": {1, 5}, "siw": {1, 3}, "tcphosts": {1, 3}}),
	spoiledRow("loss of 5 %", "loss 5%"), spoiledRow("reordering of 25 %", "delay 10ms reorder 25% 50%"),
	spoiledRow("corruption of 10 %", "corrupt 10%"),
	spoiledRow("delay of 100 ms with 20 ms of jitter", "delay 100ms 20ms", "cable: not shown"),
}
