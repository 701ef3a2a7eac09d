//go:build linux

package blocker

import (
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience is so long that only a wait for something that never comes takes as long.
const patience = 30 * time.Second

// take takes a blocker and gives it back when the test ends.
func take(t *testing.T) *Blocker {
	t.Helper()
	b := Take()
	if b == nil {
		t.Skip("with one processor nothing blocks")
	}
	t.Cleanup(b.GiveBack)
	return b
}

// TestTake: half as many blockers as processors can be taken. When they are back, they can be taken
// again.
func TestTake(t *testing.T) {
	most := min(runtime.GOMAXPROCS(0)/2, 16)
	for range 2 {
		assert.Equal(t, Free(), most)
		var all []*Blocker
		for range most {
			b := Take()
			assert.Assert(t, b != nil)
			flags, err := unix.FcntlInt(uintptr(b.kicks), unix.F_GETFD, 0)
			assert.Assert(t, err == nil && flags == unix.FD_CLOEXEC, "a child inherits the descriptor")
			all = append(all, b)
		}
		assert.Assert(t, Take() == nil && Free() == 0)
		for _, b := range all {
			b.GiveBack()
		}
	}
}

// TestWait: each of the descriptors ends a wait, and so does the timeout. A kick ends one wait,
// whether it comes before or during the wait.
func TestWait(t *testing.T) {
	b := take(t)
	var fds [3]unix.PollFd
	var w [3]*os.File
	for i := 1; i < len(fds); i++ {
		r, end, err := os.Pipe()
		assert.NilError(t, err)
		defer r.Close()
		defer end.Close()
		fds[i], w[i] = unix.PollFd{Fd: int32(r.Fd()), Events: unix.POLLIN}, end
	}
	wait := func(d time.Duration) (kicked bool) {
		t.Helper()
		began := time.Now()
		kicked = b.Wait(fds[:], d)
		assert.Assert(t, time.Since(began) < patience/2)
		return kicked
	}
	for i := 1; i < len(fds); i++ {
		_, err := w[i].Write([]byte("x"))
		assert.NilError(t, err)
		assert.Assert(t, !wait(patience))
		assert.Assert(t, fds[i].Revents == unix.POLLIN && fds[3-i].Revents == 0)
		_, err = unix.Read(int(fds[i].Fd), make([]byte, 1))
		assert.NilError(t, err)
	}
	for range 2 { // the second wait after a kick finds none
		b.Kick()
		b.Kick()
		assert.Assert(t, wait(patience))
		began := time.Now()
		for time.Since(began) < 5*time.Millisecond { // a signal may end a wait early
			assert.Assert(t, !wait(5*time.Millisecond))
		}
	}
	time.AfterFunc(time.Millisecond, b.Kick)
	for until := time.Now().Add(patience); !wait(patience); {
		assert.Assert(t, time.Now().Before(until))
	}
}
