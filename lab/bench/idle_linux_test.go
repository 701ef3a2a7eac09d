package main

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// A thousand idle connections over TCP take no processor time: no thread of this process wakes.
func TestIdleConnectionsSleep(t *testing.T) {
	const connections, watched = 1000, 3 * time.Second
	wakes := func() int64 {
		var u unix.Rusage
		assert.NilError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return u.Nvcsw
	}
	ia, err := udat.Open("tcp:127.0.0.1")
	assert.NilError(t, err)
	defer ia.Close(udat.CloseAbrupt)
	_, err = connectOn(ia, connections)
	assert.NilError(t, err)
	least := int64(-1)
	for range 5 { // what connecting has left to do, and the garbage collector, may take a while
		before := wakes()
		time.Sleep(watched)
		if n := wakes() - before; least < 0 || n < least {
			least = n
		}
		t.Logf("%d voluntary context switches of this process in %v", least, watched)
		if least <= connections/10 {
			return
		}
	}
	t.Errorf("%d voluntary context switches of this process in %v, with %d idle connections", least, watched, connections)
}
