package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/godat/godat/udat"
)

// order is a request of the runner to the other end.
type order struct {
	Do string // the name of a case of host.do
	setup
	Addr  netip.Addr
	Qual  udat.ConnQual
	Flags udat.CloseFlags
	Wait  time.Duration
	Shell string // a command of the other host's shell
	Role  string // the role that the other end of a stream has from now on
	Args  []string
}

// answer is the result of an order.
type answer struct {
	Error    string
	Addr     netip.Addr
	Qual     udat.ConnQual
	Problems []string
	Counts   [maxLinks][countFields]uint64 // the counts of a finished end
}

// host carries out orders, in a process of its own or inside the runner's.
type host struct {
	counts *counts
	e      *end
}

func (h *host) do(o order) (a answer) {
	if o.Do == "shell" {
		return answer{Error: shell(o.Shell)}
	}
	if o.Do != "open" && h.e == nil {
		return answer{Error: o.Do + ": no adapter is open"}
	}
	switch o.Do {
	case "open":
		e, err := openEnd("peer", o.setup, h.counts)
		if err != nil {
			return answer{Error: err.Error()}
		}
		h.e = e
		e.start()
		return answer{Addr: e.ia.Addr(), Qual: e.qual}
	case "connect":
		if err := h.e.connect(o.Addr, o.Qual); err != nil {
			return answer{Error: err.Error()}
		}
	case "up":
		if !within(h.e.allUp, patience) {
			return answer{Error: fmt.Sprintf("no connections after %v: %s", patience, h.e.states()), Problems: h.e.problems}
		}
	case "states":
		return answer{Problems: append(h.e.list(), h.e.states())}
	case "expect":
		h.e.mayEnd.Store(true)
	case "disconnect":
		h.e.disconnect(o.Flags)
	case "lend":
		qual, err := h.e.lend()
		if err != nil {
			return answer{Error: err.Error()}
		}
		return answer{Addr: h.e.ia.Addr(), Qual: qual}
	case "pause":
		h.e.pause.Store(o.Wait != 0)
	case "kill":
		h.e.kill()
	case "exit":
		os.Exit(0)
	case "finish":
		if !h.e.dead.Load() && !within(h.e.allOff, patience) {
			h.e.problem("peer: links that have not ended after %v", patience)
		}
		h.e.finish()
		a.Problems, a.Counts, h.e = h.e.problems, h.counts.snapshot(), nil
	default:
		return answer{Error: "unknown order " + o.Do}
	}
	return a
}

// shell runs a command and returns what went wrong, or an empty text. It stops waiting after a
// while, because the kernel may keep a command from ending.
func shell(command string) string {
	done := make(chan string, 1)
	go func() {
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			done <- fmt.Sprintf("%s: %v: %s", command, err, out)
		}
		close(done)
	}()
	select {
	case text := <-done:
		return text
	case <-time.After(2 * patience):
		return fmt.Sprintf("%s: has not ended after %v", command, 2*patience)
	}
}

func within(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// serveProcess is the main function of the other process. The counts are in a file, so that they
// remain when the process is killed.
func serveProcess(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return serve(os.Stdin, os.Stdout, file, "")
}

// serveHost is the main function of the other host. It serves all runners that connect.
func serveHost(address, device string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if err := serve(conn, conn, nil, device); err != nil {
				fmt.Fprintln(os.Stderr, "faults:", err)
			}
		}()
	}
}

// serve carries out orders until the runner is gone. The argument device, unless empty, replaces
// the device in the orders.
func serve(in io.Reader, out io.Writer, file *os.File, device string) error {
	h := &host{}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := decoder.Decode(&o); err != nil {
			if h.e != nil && !h.e.dead.Load() {
				h.e.mayEnd.Store(true)
				h.e.kill()
			}
			return nil // the runner is gone
		}
		if o.Do == "role" {
			return playRole(o.Role, o.Args, io.MultiReader(decoder.Buffered(), in), out)
		}
		if device != "" {
			o.Device = device
		}
		if o.Do == "open" {
			h.counts = &counts{file: file}
			if file != nil {
				if err := file.Truncate(0); err != nil {
					return err
				}
			}
		}
		if err := encoder.Encode(h.do(o)); err != nil {
			return err
		}
	}
}

// peer is the other end, as the runner sees it.
type peer struct {
	local   *host // inside this process
	process *exec.Cmd
	conn    net.Conn // to another host
	path    string   // the file of the counts
	last    *counts  // the counts in the latest answer of another host
	orders  *json.Encoder
	answers *json.Decoder
	gone    bool
}

// newPeer starts the other end. If remote is not empty, it is the address of the host on which the
// other end runs. Otherwise the other end is a process of its own, or, on mem0, a part of this
// process.
func newPeer(device, remote string) (*peer, error) {
	if remote != "" {
		conn, err := dial(remote)
		if err != nil {
			return nil, err
		}
		return &peer{conn: conn, orders: json.NewEncoder(conn), answers: json.NewDecoder(conn)}, nil
	}
	if device == "mem0" {
		return &peer{local: &host{}}, nil
	}
	file, err := os.CreateTemp("", "faults")
	if err != nil {
		return nil, err
	}
	file.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &peer{path: file.Name(), process: exec.Command(self, "-peer", file.Name())}
	p.process.Stderr = os.Stderr
	in, err := p.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.orders, p.answers = json.NewEncoder(in), json.NewDecoder(out)
	return p, p.process.Start()
}

// dial connects to the other host, and waits until that host is up.
func dial(at string) (net.Conn, error) {
	for until := time.Now().Add(5 * patience); ; time.Sleep(time.Second) {
		conn, err := net.DialTimeout("tcp", at, 5*time.Second)
		if err == nil || time.Now().After(until) {
			return conn, err
		}
	}
}

// do gives an order and waits for the answer.
func (p *peer) do(o order) (answer, error) {
	var a answer
	if p.local != nil {
		if o.Do == "open" {
			p.local.counts = &counts{}
		}
		a = p.local.do(o)
	} else {
		if p.conn != nil {
			p.conn.SetDeadline(time.Now().Add(5 * patience)) // no order takes as long
		}
		if err := p.orders.Encode(o); err != nil {
			return a, err
		}
		if o.Do == "exit" {
			return a, nil
		}
		if err := p.answers.Decode(&a); err != nil {
			return a, fmt.Errorf("peer, order %s: %w", o.Do, err)
		}
		if o.Do == "finish" && p.conn != nil {
			p.last = &counts{}
			p.last.restore(a.Counts)
		}
	}
	if a.Error != "" {
		return a, fmt.Errorf("peer, order %s: %s %v", o.Do, a.Error, a.Problems)
	}
	return a, nil
}

// signal sends a signal of kill(1) to the other process. If the other end is inside this process,
// KILL closes its adapter with everything alive, STOP halts its loop, and CONT continues the loop.
func (p *peer) signal(name string) error {
	if p.local == nil {
		return exec.Command("kill", "-"+name, fmt.Sprint(p.process.Process.Pid)).Run()
	}
	o := order{Do: "pause"}
	switch name {
	case "KILL":
		o.Do = "kill"
	case "STOP":
		o.Wait = 1
	}
	_, err := p.do(o)
	return err
}

// exit ends the other process without freeing anything.
func (p *peer) exit() error {
	if p.local != nil {
		return p.signal("KILL")
	}
	_, err := p.do(order{Do: "exit"})
	return err
}

// progress returns the counts of the other end, even if its process is dead.
func (p *peer) progress() (*counts, error) {
	if p.local != nil {
		return p.local.counts, nil
	}
	if p.conn != nil {
		return p.last, nil // nil if the host has vanished
	}
	c := &counts{}
	return c, c.load(p.path)
}

// close ends the other process.
func (p *peer) close() {
	if p == nil {
		return
	}
	if p.process != nil && !p.gone {
		p.process.Process.Kill()
		p.process.Wait()
		os.Remove(p.path)
	}
	if p.conn != nil {
		p.conn.Close()
	}
	p.gone = true
}
