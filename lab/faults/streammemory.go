package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// ownMemory runs memoryLimits in a process of its own, whose Go heap has a limit from the start.
func ownMemory(r *round) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-stream", "memory", r.device)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=16MiB")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out[:min(len(out), 2000)])
	}
	return nil
}

// Sizes for memoryLimits. Each of its connections asks for two buffers.
const (
	spareMemory  = 184 << 20 // additional address space of the process: room for two buffers and for the process itself
	wantedBuffer = 64 << 20
	wantingConns = 8
)

// memoryLimits runs a server and clients that want more memory than this process may have, with and
// without a limit of its address space. All bytes must be right, and memory that fits must be
// registered.
func memoryLimits(device string) error {
	heap := make([]byte, wantedBuffer) // makes the Go heap reserve address space, which it keeps
	heap[0] = 1
	runtime.KeepAlive(heap)
	var small smallBuffers
	r := &round{runner: &runner{device: device}}
	s, err := r.serve(rdmanet.ListenConfig{ReadBuffer: wantedBuffer, WriteBuffer: wantedBuffer, Logger: slog.New(&small)})
	if err != nil {
		return err
	}
	defer s.close()
	side, err := newSide(device, "limits")
	if err != nil {
		return err
	}
	defer side.close()
	for range 2 {
		if err := s.streams(); err != nil || small.n.Load() > 0 {
			return fmt.Errorf("without a limit, %d buffers stay small: %w", small.n.Load(), err)
		}
		for before := uint64(1); before != addresses(); { // wait until the buffers are given back
			before = addresses()
			time.Sleep(500 * time.Millisecond)
		}
		undo, err := limitAddresses(spareMemory)
		if err != nil {
			return err
		}
		_, err = side.ia.AllocLMR(side.pz, 2*spareMemory, udat.PrivAll)
		if !errors.Is(err, udat.ErrInsufficientResources) || !strings.Contains(err.Error(), "RLIMIT_AS") {
			return fmt.Errorf("a region of %d bytes with %d left: %w", 2*spareMemory, spareMemory, err)
		}
		region, err := side.ia.AllocLMR(side.pz, spareMemory/4, udat.PrivAll)
		if err != nil {
			return fmt.Errorf("a region of %d bytes with %d left: %w", spareMemory/4, spareMemory, err)
		}
		if err := region.Free(); err != nil {
			return err
		}
		if err := s.streams(); err != nil {
			return fmt.Errorf("with a limit: %w", err)
		}
		err = eventually(patience, "the log says that a buffer stays small, and names the limit", func() bool {
			return small.n.Load() > 0
		})
		if err := errors.Join(err, undo()); err != nil {
			return err
		}
		small.n.Store(0)
	}
	return nil
}

// streams makes connections that echo many bytes, all open at the same time.
func (s *echoServer) streams() error {
	s.forget()
	conns := make([]*rdmanet.Conn, wantingConns)
	err := runMany(wantingConns, wantingConns, func(i int) (err error) {
		if conns[i], err = s.dial(patience); err != nil {
			return err
		}
		const n = 1 << 20
		sent := make(chan error, 1)
		go func() {
			_, err := io.CopyN(struct{ io.Writer }{conns[i]}, written(uint64(i)), n)
			sent <- err
		}()
		got := written(uint64(i))
		_, err = io.CopyN(got, struct{ io.Reader }{conns[i]}, n)
		return errors.Join(err, <-sent)
	})
	for _, c := range conns {
		if c != nil {
			err = errors.Join(err, c.Close())
		}
	}
	if err != nil {
		return err
	}
	return s.allEnded(wantingConns)
}

// smallBuffers counts those log records of rdmanet that report a buffer that could not grow, and
// that name the limit.
type smallBuffers struct{ n atomic.Int64 }

func (*smallBuffers) Enabled(context.Context, slog.Level) bool { return true }

func (s *smallBuffers) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" && strings.Contains(a.Value.String(), "RLIMIT_AS") {
			s.n.Add(1)
		}
		return true
	})
	return nil
}

func (s *smallBuffers) WithAttrs([]slog.Attr) slog.Handler { return s }
func (s *smallBuffers) WithGroup(string) slog.Handler      { return s }
