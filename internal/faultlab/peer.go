package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/godat/godat/udat"
)

// order is what the runner asks of the other end.
type order struct {
	Do     string // the name of a case of host.do
	Device string
	Active bool // this end connects
	Addr   netip.Addr
	Qual   udat.ConnQual
	Flags  udat.CloseFlags
	Wait   time.Duration
}

// answer is the result of an order.
type answer struct {
	Error    string
	Addr     netip.Addr
	Qual     udat.ConnQual
	Problems []string
}

// host serves orders: in a process of its own, or inside the runner's.
type host struct {
	counts *counts
	e      *end
}

func (h *host) do(o order) (a answer) {
	if o.Do != "open" && h.e == nil {
		return answer{Error: o.Do + ": no adapter is open"}
	}
	switch o.Do {
	case "open":
		e, err := openEnd("peer", o.Device, o.Active, h.counts)
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
			return answer{Error: fmt.Sprintf("no connections after %v", patience), Problems: h.e.problems}
		}
	case "expect":
		h.e.mayEnd.Store(true)
	case "disconnect":
		h.e.disconnect(o.Flags)
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
		a.Problems, h.e = h.e.problems, nil
	default:
		return answer{Error: "unknown order " + o.Do}
	}
	return a
}

func within(done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// serve is the other process: orders come by its standard input, answers leave by its output. Its
// counts are in a file, so that they outlive it.
func serve(in io.Reader, out io.Writer, path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	h := &host{counts: &counts{file: file}}
	decoder, encoder := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := decoder.Decode(&o); err != nil {
			return nil // the runner is gone
		}
		if o.Do == "open" {
			h.counts = &counts{file: file}
			if err := file.Truncate(0); err != nil {
				return err
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
	path    string // of the counts
	orders  *json.Encoder
	answers *json.Decoder
	gone    bool
}

// newPeer starts the other end: in a process of its own unless the fabric is inside one.
func newPeer(device string) (*peer, error) {
	if device == "mem0" {
		return &peer{local: &host{}}, nil
	}
	file, err := os.CreateTemp("", "faultlab")
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

// do gives an order and waits for the answer.
func (p *peer) do(o order) (answer, error) {
	var a answer
	if p.local != nil {
		if o.Do == "open" {
			p.local.counts = &counts{}
		}
		a = p.local.do(o)
	} else {
		if err := p.orders.Encode(o); err != nil {
			return a, err
		}
		if o.Do == "exit" {
			return a, nil
		}
		if err := p.answers.Decode(&a); err != nil {
			return a, fmt.Errorf("peer, order %s: %w", o.Do, err)
		}
	}
	if a.Error != "" {
		return a, fmt.Errorf("peer, order %s: %s %v", o.Do, a.Error, a.Problems)
	}
	return a, nil
}

// signal sends a signal of kill(1) to the other process. Inside this process, KILL closes the
// adapter with everything alive, STOP and CONT halt its loop.
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

// progress returns the counts of the other end, of a dead process too.
func (p *peer) progress() (*counts, error) {
	if p.local != nil {
		return p.local.counts, nil
	}
	c := &counts{}
	return c, c.load(p.path)
}

// close ends the other process.
func (p *peer) close() {
	if p.process != nil && !p.gone {
		p.process.Process.Kill()
		p.process.Wait()
		os.Remove(p.path)
	}
	p.gone = true
}
