package soft

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"gotest.tools/v3/assert"
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

func receive(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing comes")
	}
}
