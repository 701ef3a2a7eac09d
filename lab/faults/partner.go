package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/godat/godat/rdmanet"
)

// roles are the functions of the other end of a stream, by name. A function gets the connection. It
// reads the runner's requests from in, one per line, and writes its answers to out.
var roles = map[string]func(c *rdmanet.Conn, seed uint64, dialed bool, in *json.Decoder, out *json.Encoder) error{
	"traffic": func(c *rdmanet.Conn, seed uint64, dialed bool, in *json.Decoder, out *json.Encoder) error {
		s := newStream(c, seed, dialed)
		var text string
		if err := in.Decode(&text); err != nil { // the runner is gone
			c.SetLinger(0)
			c.Close()
			s.done.Wait()
			return err
		}
		if text == "exit" {
			os.Exit(0) // without closing the connection
		}
		return errors.Join(out.Encode(s.finish()), drained())
	},
	"echo": func(c *rdmanet.Conn, _ uint64, _ bool, _ *json.Decoder, _ *json.Encoder) error { return echo(c) },
	// The slow reader begins to read when it gets a request, reads slowly, and writes nothing.
	"slow reader": func(c *rdmanet.Conn, seed uint64, dialed bool, in *json.Decoder, out *json.Encoder) error {
		var text string
		if err := in.Decode(&text); err != nil {
			return err
		}
		got := written(seed)
		_, err := io.CopyBuffer(slowly{got}, struct{ io.Reader }{c}, make([]byte, 3000))
		f := flowed{Taken: got.bytes}
		if err := errors.Join(err, c.Close()); err != nil {
			f.Error = err.Error()
		}
		return out.Encode(f)
	},
	// The writer writes and closes the connection. Then it waits until rdmanet has delivered all
	// bytes.
	"writer": func(c *rdmanet.Conn, seed uint64, dialed bool, in *json.Decoder, out *json.Encoder) error {
		if err := writeAndClose(c, seed, 200_000); err != nil {
			return err
		}
		return errors.Join(drained(), out.Encode(flowed{Sent: 200_000}))
	},
	// The leaver exits right after Close if Close has waited until the peer's device has all bytes. If
	// Close takes half a second instead, rdmanet sends the remaining bytes later, and the leaver waits
	// for that with Drain.
	"leaver": func(c *rdmanet.Conn, seed uint64, dialed bool, in *json.Decoder, out *json.Encoder) error {
		began := time.Now()
		if err := writeAndClose(c, seed, leaverBytes); err != nil {
			return err
		}
		if time.Since(began) > closeWaits {
			return drained()
		}
		os.Exit(0)
		return nil
	},
}

// drained waits until no connection of this process has bytes to deliver. Its error says what is
// lost.
func drained() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return rdmanet.Drain(ctx)
}

const (
	leaverBytes = 100_000
	closeWaits  = 400 * time.Millisecond // less than the longest wait of Close
)

// A writer of type slowly passes bytes on to w, with a pause before each write.
type slowly struct{ w io.Writer }

func (s slowly) Write(b []byte) (int, error) {
	time.Sleep(5 * time.Millisecond)
	return s.w.Write(b)
}

// written returns the stream that writeAndClose writes.
func written(seed uint64) *pattern { return &pattern{id: 3, seq: seed << 24, stop: new(atomic.Bool)} }

func writeAndClose(c *rdmanet.Conn, seed uint64, n int64) error {
	if _, err := io.CopyN(struct{ io.Writer }{c}, written(seed), n); err != nil {
		return err
	}
	return c.Close()
}

// serveStream is the main function of the other process of a stream. Its arguments are the device,
// the keep-alive, the seed and the address to dial; without an address it listens.
func serveStream(role string, args []string) error {
	return playRole(role, args, os.Stdin, os.Stdout)
}

func playRole(role string, args []string, in io.Reader, out io.Writer) error {
	switch role {
	case "server":
		return serveLimited(args, in, out)
	case "memory":
		return memoryLimits(args[0])
	case "long messages":
		return serveLong(args, out)
	}
	if len(args) < 3 || roles[role] == nil {
		return fmt.Errorf("role %q with arguments %q", role, args)
	}
	device := args[0]
	keepAlive, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	var c *rdmanet.Conn
	if len(args) > 3 {
		c, err = (&rdmanet.Dialer{Device: device, KeepAlive: keepAlive}).Dial(context.Background(), "rdma", args[3])
	} else {
		c, err = acceptOne(device, keepAlive, func(address string) error { return encoder.Encode(address) })
	}
	if err != nil {
		return err
	}
	return roles[role](c, seed, len(args) > 3, decoder, encoder)
}

// listenOn listens on a device.
func listenOn(device string, lc rdmanet.ListenConfig) (*rdmanet.Listener, error) {
	lc.Device = device
	l, err := lc.Listen(context.Background(), "rdma", ":0")
	if err != nil {
		return nil, err
	}
	return l, nil
}

// acceptOne listens, passes its address to onListening, and accepts one connection.
func acceptOne(device string, keepAlive time.Duration, onListening func(address string) error) (*rdmanet.Conn, error) {
	l, err := listenOn(device, rdmanet.ListenConfig{KeepAlive: keepAlive})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := onListening(l.Addr().String()); err != nil {
		return nil, err
	}
	l.SetDeadline(time.Now().Add(patience))
	return l.AcceptConn()
}

// partner is the other end of a stream, as the runner sees it: a process of its own. On mem0 it is
// a goroutine of this process.
type partner struct {
	role    string
	process *exec.Cmd
	in      io.WriteCloser
	out     io.Closer // on mem0: the pipe of the answers
	answers *json.Decoder
	ended   chan error
	errors  tail
	c       *rdmanet.Conn // this end of the connection
	seed    uint64
	dialed  bool // this end has dialed
}

// tail keeps the last bytes that were written.
type tail struct{ b []byte }

func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	t.b = t.b[max(0, len(t.b)-1000):]
	return len(b), nil
}

// partner starts the other end of a stream and connects to it. In every second round this end
// dials.
func (r *round) partner(role string, keepAlive time.Duration) (*partner, error) {
	p := &partner{role: role, ended: make(chan error, 1), seed: r.seed<<16 + uint64(r.n/2), dialed: r.n%2 == 1}
	args := []string{r.device, keepAlive.String(), fmt.Sprint(p.seed)}
	var err error
	if p.dialed {
		var address string
		if err = p.start(r.at, args); err == nil {
			err = p.answers.Decode(&address)
		}
		if err == nil {
			d := rdmanet.Dialer{Device: r.device, KeepAlive: keepAlive}
			p.c, err = d.Dial(context.Background(), "rdma", address)
		}
	} else {
		p.c, err = acceptOne(r.device, keepAlive, func(address string) error { return p.start(r.at, append(args, address)) })
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("%w; the other end: %s", err, p.errors.b)
	}
	return p, nil
}

// start starts the other end. If remote is not empty, it is the address of the host on which the
// other end runs. Otherwise the other end is a process of its own, or, on mem0, a part of this
// process.
func (p *partner) start(remote string, args []string) error {
	if remote != "" {
		conn, err := dial(remote)
		if err != nil {
			return err
		}
		p.in, p.answers = conn, json.NewDecoder(conn)
		return json.NewEncoder(conn).Encode(order{Do: "role", Role: p.role, Args: args})
	}
	if args[0] == "mem0" {
		in, requests := io.Pipe()
		answers, out := io.Pipe()
		p.in, p.out, p.answers = requests, answers, json.NewDecoder(answers)
		go func() {
			err := playRole(p.role, args, in, out)
			out.CloseWithError(err)
			p.ended <- err
		}()
		return nil
	}
	return p.startProcess("", args)
}

// startProcess starts the other end as a process, after the shell has run commands.
func (p *partner) startProcess(commands string, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p.process = exec.Command("sh", append([]string{"-c", commands + `exec "$0" -stream "$@"`, self, p.role}, args...)...)
	p.process.Stderr = &p.errors
	if p.in, err = p.process.StdinPipe(); err != nil {
		return err
	}
	out, err := p.process.StdoutPipe()
	if err != nil {
		return err
	}
	p.answers = json.NewDecoder(out)
	return p.process.Start()
}

// tell sends a request to the other end.
func (p *partner) tell(text string) error { return json.NewEncoder(p.in).Encode(text) }

// answer returns what the other end has sent and received.
func (p *partner) answer() (f flowed, err error) {
	if err = p.answers.Decode(&f); err != nil {
		err = fmt.Errorf("the other end: %w: %s", err, p.errors.b)
	}
	return f, err
}

// signal sends a signal of kill(1) to the other end's process.
func (p *partner) signal(name string) error {
	return exec.Command("kill", "-"+name, fmt.Sprint(p.process.Process.Pid)).Run()
}

// close ends the other end.
func (p *partner) close() {
	switch {
	case p.process != nil && p.process.Process != nil:
		p.process.Process.Kill()
		p.process.Wait()
	case p.in != nil && p.process == nil:
		p.in.Close()
		if p.out != nil {
			p.out.Close()
			<-p.ended
		}
	}
	if p.c != nil {
		p.c.Close()
	}
}
