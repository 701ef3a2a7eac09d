package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// output collects what a program writes while others read it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a program that runs beside this one.
type process struct {
	out, err output // what it has written
	cmd      *exec.Cmd
	cancel   context.CancelFunc
	done     chan struct{}
	failure  error
}

// start runs a program, at most for limit.
func start(limit time.Duration, env []string, argv ...string) (*process, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	p := &process{cancel: cancel, done: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
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

// wait returns the standard output once the program has ended.
func (p *process) wait() (string, error) {
	<-p.done
	out := p.out.String()
	if p.failure != nil {
		return out, fmt.Errorf("%s: %w: %s", filepath.Base(p.cmd.Path), p.failure, lastLines(p.err.String()+out, 3))
	}
	return out, nil
}

func (p *process) stop() {
	p.cancel()
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// until polls for a condition until it holds, the program has ended, or limit has passed.
func (p *process) until(limit time.Duration, ready func() bool) error {
	for begin := time.Now(); !ready(); time.Sleep(20 * time.Millisecond) {
		if p.ended() {
			_, err := p.wait()
			return errors.Join(errors.New("ended before it was ready"), err)
		}
		if time.Since(begin) > limit {
			said := lastLines(p.err.String()+p.out.String(), 3)
			return fmt.Errorf("%s: not ready after %v: %s", filepath.Base(p.cmd.Path), limit, said)
		}
	}
	return nil
}

func lastLines(s string, n int) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" && strings.Trim(line, "-") != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " / ")
}

// show is a command as a person would type it.
func show(argv []string) string {
	line := slices.Clone(argv)
	for i := range line {
		if filepath.IsAbs(line[i]) { // a program of this run's; taskset may stand before it
			line[i] = filepath.Base(line[i])
		}
	}
	return strings.Join(line, " ")
}

func (b *bench) run(limit time.Duration, argv ...string) (string, error) {
	p, err := start(limit, nil, argv...)
	if err != nil {
		return "", err
	}
	return p.wait()
}
