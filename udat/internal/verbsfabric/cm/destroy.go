package cm

import (
	"sync"
	"time"

	"github.com/godat/godat/cverbs"
)

// The kernel may wait without a bound when an id is destroyed: Linux 6.1 does so if the device has
// lost a message of the id, see Device.NoRoute. After the times below nobody waits for the kernel
// any more: it frees the id when it is done.
const (
	destroyTime   = time.Second     // for one id
	closeTime     = 5 * time.Second // for all calls on ids of a device
	DestroyAtOnce = 4               // destroyed at one time: each takes a thread
)

// destroyer makes the calls on ids that may take long.
type destroyer struct {
	dev   Device
	calls sync.WaitGroup
	busy  chan struct{}            // has an element for each id that is being destroyed
	end   func(*cverbs.CMID) error // tests replace it
}

func newDestroyer(dev Device) destroyer {
	return destroyer{dev: dev, busy: make(chan struct{}, DestroyAtOnce), end: (*cverbs.CMID).Close}
}

// destroy destroys an id.
func (d *destroyer) destroy(id *cverbs.CMID) {
	noRoute := d.noRoute(id)
	stuck := noRoute || len(d.busy) > DestroyAtOnce/2
	done := make(chan error, 1)
	d.calls.Go(func() {
		if noRoute {
			d.awaitRoute(id)
		}
		d.busy <- struct{}{}
		done <- d.end(id)
		<-d.busy
	})
	if !stuck {
		atMost(destroyTime, done)
	}
}

// noRoute reports whether messages about a connection have to wait.
func (d *destroyer) noRoute(id *cverbs.CMID) bool {
	local, remote := id.LocalAddr(), id.RemoteAddr()
	return local.IsValid() && remote.Port() != 0 && d.dev.NoRoute(local.Addr(), remote)
}

// awaitRoute waits until there is one.
func (d *destroyer) awaitRoute(id *cverbs.CMID) {
	for pause := 10 * time.Millisecond; d.noRoute(id); pause = min(2*pause, time.Second) {
		time.Sleep(pause)
	}
}

// atMost waits for a result, but no longer than d.
func atMost(d time.Duration, done <-chan error) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return nil
	}
}
