//go:build linux && amd64

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// count contains the instructions and system calls of one region. Only the thread that reaches the
// breakpoint is counted.
type count struct{ instructions, calls int }

// trace runs a program and steps through its regions. A region lasts from an odd breakpoint to the
// next even one, and the other threads of the program are stopped meanwhile. trace stops the
// program when it has enough counts.
func trace(limit time.Duration, env []string, argv ...string) ([]count, error) {
	runtime.LockOSThread() // only the thread that starts a process can trace it
	defer runtime.UnlockOSThread()
	cmd := exec.Command(argv[0], argv[1:]...)
	var said strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &tracer{pid: cmd.Process.Pid}
	late := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	defer late.Stop()
	err := t.run()
	if err != nil {
		cmd.Process.Kill()
	}
	for !t.ended && t.wait() == nil {
		t.resume()
	}
	cmd.Wait() // waits for the output; the tracer has already taken the status
	switch {
	case enough(t.counts):
	case err == nil && t.status.Signaled():
		err = fmt.Errorf("ended by %v (it had %v)", t.status.Signal(), limit)
	case err == nil && t.status.ExitStatus() != 0:
		err = fmt.Errorf("exit status %d", t.status.ExitStatus())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, said.String())
	}
	return t.counts, nil
}

type tracer struct {
	pid    int
	at     int             // thread that stopped last
	status unix.WaitStatus // status of that thread
	ended  bool
	counts []count
}

func (t *tracer) run() error {
	if err := t.wait(); err != nil {
		return err
	}
	if err := unix.PtraceSetOptions(t.pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return err
	}
	t.resume()
	for {
		if err := t.wait(); err != nil || t.ended {
			return err
		}
		if t.atMark() {
			if err := t.region(); err != nil {
				return err
			}
			if enough(t.counts) {
				return unix.Kill(t.pid, unix.SIGKILL)
			}
		}
		t.resume()
	}
}

// The function enough reports whether the two least counts are equal, or there are 8 counts. In
// both cases further regions would not change the result, and a region takes long: one step takes
// tens of microseconds.
func enough(counts []count) bool {
	if len(counts) < 2 || len(counts) >= 8 {
		return len(counts) >= 8
	}
	sorted := slices.Clone(counts)
	slices.SortFunc(sorted, func(a, b count) int { return a.instructions - b.instructions })
	return sorted[0] == sorted[1]
}

// wait waits until a thread stops or the process ends.
func (t *tracer) wait() (err error) {
	for {
		t.at, err = unix.Wait4(-1, &t.status, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		t.ended = t.ended || err == nil && t.at == t.pid && !t.status.Stopped()
		return err
	}
}

// atMark reports whether the thread that stopped last was stopped by a breakpoint or a step, and
// not by another signal.
func (t *tracer) atMark() bool {
	return t.status.Stopped() && t.status.StopSignal() == unix.SIGTRAP && t.status.TrapCause() <= 0
}

// resume continues the thread that stopped last. If a signal stopped the thread, it gets that
// signal.
func (t *tracer) resume() {
	if !t.status.Stopped() {
		return
	}
	signal := t.status.StopSignal()
	if signal == unix.SIGTRAP || signal == unix.SIGSTOP { // sent by the tracer
		signal = 0
	}
	unix.PtraceCont(t.at, int(signal)) // an error does not matter: the thread may have been killed meanwhile
}

// region steps through a region: from the breakpoint that the thread has just passed until the
// thread is at the same breakpoint again. If the thread waits for a thread that is stopped, region
// does not count this region. The stopped thread may hold a lock, or Go's monitor may have asked
// the stepped thread to give up its processor just before everything stopped.
func (t *tracer) region() error {
	tid := t.at
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	frozen, err := t.freeze(tid)
	if err != nil {
		return err
	}
	var steps atomic.Int64
	defer whenStuck(&steps, func() { unix.Tgkill(t.pid, tid, unix.SIGSTOP) })()
	mark := regs.Rip - 1
	var c count
	for regs.Rip != mark {
		if err := unix.PtraceSingleStep(tid); err != nil {
			return err
		}
		if err := t.await(tid); err != nil {
			return err
		}
		if t.status.StopSignal() == unix.SIGSTOP {
			break
		}
		c.instructions++
		steps.Add(1)
		if err := unix.PtraceGetRegs(tid, &regs); err != nil {
			return err
		}
		// The instruction syscall leaves its return address in rcx and the flags in r11. A call of the
		// address in rcx may leave the registers like that, too.
		if regs.Rcx == regs.Rip && (regs.R11^regs.Eflags)&^traceFlags == 0 {
			var before [2]byte
			if _, err := unix.PtracePeekText(tid, uintptr(regs.Rip-2), before[:]); err != nil {
				return err
			}
			if before == syscallCode {
				c.calls++
			}
		}
	}
	if regs.Rip == mark {
		t.counts = append(t.counts, c)
	}
	for thread, signal := range frozen {
		unix.PtraceCont(thread, int(signal))
	}
	for {
		if err := unix.PtraceCont(tid, 0); err != nil {
			return err
		}
		if err := t.await(tid); err != nil || t.status.StopSignal() == unix.SIGTRAP {
			return err
		}
	}
}

// syscallCode is the instruction syscall.
var syscallCode = [2]byte{0x0f, 0x05}

// traceFlags are those flags of the processor that a debugger changes.
const traceFlags = 1<<8 | 1<<16

// A region is stuck if one step takes as long as stepLimit, or if all its steps together take as
// long as regionLimit.
const stepLimit, regionLimit = time.Second, 20 * time.Second

// whenStuck watches for a region that is stuck, and then calls onStuck repeatedly. The caller
// counts the steps. The function that whenStuck returns ends the watching.
func whenStuck(steps *atomic.Int64, onStuck func()) (end func()) {
	ended := make(chan struct{})
	go func() {
		tick := time.NewTicker(stepLimit)
		defer tick.Stop()
		for began, last := time.Now(), int64(-1); ; {
			select {
			case <-ended:
				return
			case <-tick.C:
				if now := steps.Load(); now == last || time.Since(began) > regionLimit {
					onStuck()
				} else {
					last = now
				}
			}
		}
	}()
	return func() { close(ended) }
}

// freeze stops all threads except tid. It returns the signal that each thread must get when it
// continues. The thread tid steps so slowly that Go's monitor would consider it blocked and start
// other threads.
func (t *tracer) freeze(tid int) (map[int]unix.Signal, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.pid))
	if err != nil {
		return nil, err
	}
	frozen := make(map[int]unix.Signal)
	for _, task := range tasks {
		thread, err := strconv.Atoi(task.Name())
		if err == nil && thread != tid && unix.Tgkill(t.pid, thread, unix.SIGSTOP) == nil {
			frozen[thread] = 0
		}
	}
	for left := len(frozen); left > 0; {
		if err := t.wait(); err != nil {
			return nil, err
		}
		if _, ok := frozen[t.at]; !ok {
			if !t.status.Stopped() {
				return nil, errors.New("a thread ended that was not to stop")
			}
			frozen[t.at] = 0 // the thread has just been created
			continue
		}
		left--
		if s := t.status.StopSignal(); t.status.Stopped() && s != unix.SIGSTOP && s != unix.SIGTRAP {
			frozen[t.at] = s
		}
	}
	return frozen, nil
}

// await waits until the thread tid stops: at a breakpoint, after a step, or because the region
// takes too long. It continues other threads that stop.
func (t *tracer) await(tid int) error {
	for {
		if err := t.wait(); err != nil {
			return err
		}
		switch {
		case t.ended, t.at == tid && !t.status.Stopped():
			return errors.New("ended between two marks")
		case t.at != tid:
			t.resume()
		case t.atMark(), t.status.StopSignal() == unix.SIGSTOP:
			return nil
		default:
			return fmt.Errorf("%v between two marks", t.status.StopSignal())
		}
	}
}
