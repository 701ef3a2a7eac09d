// Package process runs programs as child processes, each with a time limit.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Output collects what a program writes. Its methods may be called concurrently.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p. It never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String returns what has been written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Process is a program that Start has started. Its methods may be called concurrently.
type Process struct {
	Stdout, Stderr Output

	cmd     *exec.Cmd
	cancel  context.CancelFunc
	done    chan struct{}
	failure error
}

// Start starts the program argv, with env added to the environment. The program is killed after
// limit.
func Start(limit time.Duration, env []string, argv ...string) (*Process, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	p := &Process{cancel: cancel, done: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.Stdout, &p.Stderr
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.failure = p.cmd.Wait()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			p.failure = fmt.Errorf("no end after %v", limit)
		}
		cancel()
	}()
	return p, nil
}

// Wait waits until the program has ended and returns its standard output. It returns an error if
// the program failed, or was killed after its limit.
func (p *Process) Wait() (string, error) {
	<-p.done
	out := p.Stdout.String()
	if p.failure != nil {
		return out, fmt.Errorf("%s: %w: %s", filepath.Base(p.cmd.Path), p.failure, LastLines(p.Stderr.String()+out, 3))
	}
	return out, nil
}

// Stop kills the program and waits until it has ended.
func (p *Process) Stop() {
	p.cancel()
	<-p.done
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Until waits until ready returns true. It returns an error if the program ends first, or if limit
// passes.
func (p *Process) Until(limit time.Duration, ready func() bool) error {
	for begin := time.Now(); !ready(); time.Sleep(20 * time.Millisecond) {
		if p.ended() {
			_, err := p.Wait()
			return errors.Join(errors.New("ended before it was ready"), err)
		}
		if time.Since(begin) > limit {
			said := LastLines(p.Stderr.String()+p.Stdout.String(), 3)
			return fmt.Errorf("%s: not ready after %v: %s", filepath.Base(p.cmd.Path), limit, said)
		}
	}
	return nil
}

// LastLines returns the last n lines of a program's output, joined by " / ". It skips empty lines
// and lines of dashes.
func LastLines(s string, n int) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && strings.Trim(line, "-") != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " / ")
}
