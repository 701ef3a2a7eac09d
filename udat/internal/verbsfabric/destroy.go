package verbsfabric

import (
	"time"

	"github.com/godat/godat/cverbs"
)

// The kernel may wait without a bound when an id is destroyed: that of Linux 6.1 does so if its
// device has lost a message of the id, see noRoute. Then nobody waits for the kernel: it frees what
// it holds when it is done.
const (
	destroyTime   = time.Second     // for one id
	closeTime     = 5 * time.Second // for all calls on ids of a device
	destroyAtOnce = 4               // destroyed at one time: each takes a thread
)

// destroyID destroys an id.
func (d *device) destroyID(id *cverbs.CMID) {
	noRoute := d.noRoute(id)
	stuck := noRoute || len(d.destroying) > destroyAtOnce/2
	done := make(chan error, 1)
	d.calls.Go(func() {
		if noRoute {
			d.awaitRoute(id)
		}
		d.destroying <- struct{}{}
		done <- d.destroy(id)
		<-d.destroying
	})
	if !stuck {
		atMost(destroyTime, done)
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
