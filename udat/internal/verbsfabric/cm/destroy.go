package cm

import (
	"sync"
	"time"

	"github.com/godat/godat/cverbs"
)

// The kernel may take any time to destroy an id. On Linux 6.1 it never finishes if the device has
// lost a message of the id (see Device.NoRoute). This package waits for the kernel for at most the
// times below. If the kernel finishes later, it still frees the id.
const (
	destroyTime   = time.Second     // to destroy one id
	closeTime     = 5 * time.Second // for all calls on ids of a device
	DestroyAtOnce = 4               // ids that are destroyed at one time, because each blocks a thread
)

// destroyer runs calls on ids, if these calls may take a long time.
type destroyer struct {
	dev   Device
	calls sync.WaitGroup
	busy  chan struct{}            // has an element for each id that is being destroyed
	end   func(*cverbs.CMID) error // destroys an id; tests replace it
}

func newDestroyer(dev Device) destroyer {
	return destroyer{dev: dev, busy: make(chan struct{}, DestroyAtOnce), end: (*cverbs.CMID).Close}
}

// destroy destroys an id. It waits until the id is destroyed, but at most for destroyTime. If the
// id is likely to need longer, it does not wait at all.
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

// awaitRoute waits until noRoute returns false.
func (d *destroyer) awaitRoute(id *cverbs.CMID) {
	for pause := 10 * time.Millisecond; d.noRoute(id); pause = min(2*pause, time.Second) {
		time.Sleep(pause)
	}
}

// atMost waits for a result, but no longer than d. It returns nil if no result has come by then.
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
