//go:build linux

package soft

import (
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

// TestRoutesLost: the removal of an IPv6 route is reported, a new route is not, and Close ends the
// reports.
func TestRoutesLost(t *testing.T) {
	if os.Getenv("GODAT_VM") == "" {
		t.Skip("only the virtual machine's routes change")
	}
	f, err := openRoutes()
	assert.NilError(t, err)
	lost, over := make(chan struct{}, 16), make(chan struct{})
	go func() {
		defer close(over)
		readRoutes(f, func() { lost <- struct{}{} })
	}()
	for range 3 {
		for _, do := range []string{"add", "del"} {
			assert.Equal(t, len(lost), 0)
			text, err := exec.Command("ip", "-6", "route", do, "unreachable", "fd97::/64").CombinedOutput()
			assert.NilError(t, err, "%s", text)
		}
		receive(t, lost)
	}
	assert.NilError(t, f.Close())
	receive(t, over)
}

// TestWatch: each removal of a route is acted upon, and removals that come before the action are
// acted upon together.
func TestWatch(t *testing.T) {
	r, w, err := os.Pipe()
	assert.NilError(t, err)
	defer w.Close()
	removal := make([]byte, syscall.SizeofNlMsghdr)
	binary.NativeEndian.PutUint32(removal, uint32(len(removal)))
	binary.NativeEndian.PutUint16(removal[4:], syscall.RTM_DELROUTE)
	stop, cancel := context.WithCancel(t.Context())
	scheduled, lost := make(chan func(), 16), 0
	over := make(chan struct{})
	go func() {
		defer close(over)
		Routes{r}.Watch(stop, func(f func()) { scheduled <- f }, func() { lost++ })
	}()
	for n := range 3 {
		_, err := w.Write(removal)
		assert.NilError(t, err)
		receive(t, scheduled)()
		assert.Equal(t, lost, n+1)
	}
	cancel()
	receive(t, over)
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(leaktest.Patience):
		t.Fatal("nothing comes")
		panic("unreachable")
	}
}
