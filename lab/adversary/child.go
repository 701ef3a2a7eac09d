//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/godat/godat/lab/adversary/pattern"
	"github.com/godat/godat/lab/process"
)

// child is a target in a process of its own.
type child struct {
	pattern.Hello
	cmd    *exec.Cmd
	in     *os.File
	lines  chan []byte
	stderr process.Output
	first  *pattern.Report // the first report: later ones may not need much more
	served int
	over   *tls.Config // TLS with the target; nil: none
}

// reportLimit bounds the wait for each answer of the target. It is longer than the target's own
// bounds.
const reportLimit = 150 * time.Second

// start starts a target in a mode.
func start(program string, mode pattern.Mode) (*child, error) {
	c := &child{cmd: exec.Command(program, string(mode)), lines: make(chan []byte, 4)}
	if mode == pattern.TLS {
		var err error
		if c.over, err = pattern.Config(); err != nil {
			return nil, err
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c.in = w
	c.cmd.Stdin, c.cmd.Stderr = r, &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	go func() {
		defer close(c.lines)
		s := bufio.NewScanner(out)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			c.lines <- append([]byte(nil), s.Bytes()...)
		}
	}()
	return c, c.hear(&c.Hello)
}

// hear waits for the target's next answer.
func (c *child) hear(v any) error {
	timer := time.NewTimer(reportLimit)
	defer timer.Stop()
	select {
	case line, ok := <-c.lines:
		if !ok {
			err := c.cmd.Wait()
			return finding("the target has ended: %v\n%s", err, head(c.stderr.String(), 3000))
		}
		return json.Unmarshal(line, v)
	case <-timer.C:
		c.cmd.Process.Signal(syscall.SIGQUIT) // the runtime prints where all goroutines are
		for range c.lines {
		}
		c.cmd.Wait()
		return finding("the target does not answer in %v\n%s", reportLimit, head(c.stderr.String(), 20000))
	}
}

func (c *child) stop() {
	c.in.Close()
	c.cmd.Process.Kill()
	for range c.lines {
	}
	c.cmd.Wait()
}

func head(s string, n int) string { return s[:min(len(s), n)] }

// begin makes the target ready for a session: it connects to port, or accepts if port is 0.
func (c *child) begin(seed uint64, port int) error {
	fmt.Fprintf(c.in, "session %d %d\n", seed, port)
	var ready string
	return c.hear(&ready)
}

// What a target may need more than after its first sessions.
const (
	warmUp         = 30 // sessions
	moreHeapKB     = 24 << 10
	moreFiles      = 12
	moreGoroutines = 40
)

// end takes the target's report of the session.
func (c *child) end() (*pattern.Report, error) {
	fmt.Fprintln(c.in, "end")
	var r pattern.Report
	if err := c.hear(&r); err != nil {
		return nil, err
	}
	c.served++
	if c.served == warmUp {
		c.first = &r
	}
	switch f := c.first; {
	case len(r.Findings) > 0:
		return &r, finding("the target reports: %q", r.Findings)
	case f == nil:
	case r.HeapKB > f.HeapKB+moreHeapKB, r.Files > f.Files+moreFiles, r.Goroutines > f.Goroutines+moreGoroutines:
		return &r, finding("the target needs %d KB, %d descriptors and %d goroutines; after %d sessions it was %d, %d and %d",
			r.HeapKB, r.Files, r.Goroutines, warmUp, f.HeapKB, f.Files, f.Goroutines)
	}
	return &r, nil
}
