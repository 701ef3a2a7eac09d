package memfabric

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// One goroutine serves all queue pairs of a device: a queue pair that waits must not delay another
// one.
func TestAWaitHoldsUpNoOtherQueuePair(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		first, firstPeer := a.qp, b.qp
		a.send(1, a.at(0, 8)) // meets no receive
		a.renew()
		b.renew()
		join(t, a, b)
		second := a.qp
		a.dev.Faults().Delay(time.Minute)
		a.remote(2, fabric.OpWrite, b.at(0, 0), a.at(0, 8))
		a.dev.Faults().Delay(0)
		a.renew()
		b.renew()
		join(t, a, b)
		start := time.Now()
		a.remote(3, fabric.OpWrite, b.at(0, 0), a.at(0, 8))
		a.completion(3, fabric.StatusSuccess)
		assert.Equal(t, time.Since(start), time.Duration(0))
		_, err := firstPeer.PostRecv([]fabric.RecvWR{{ID: 4}}, nil)
		assert.NilError(t, err)
		a.qp = first
		a.completion(1, fabric.StatusRemoteInvReq) // the receive has no room
		assert.Equal(t, time.Since(start), time.Duration(0))
		a.qp = second
		a.completion(2, fabric.StatusSuccess)
		assert.Equal(t, time.Since(start), time.Minute)
	})
}

// Close waits only for the message that is being received, and not for what the queue pair itself
// waits for.
func TestCloseOfAQueuePairThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t, endOptions{})
		a.send(1) // meets no receive
		a.dev.Faults().Delay(time.Hour)
		a.send(2)
		start := time.Now()
		assert.NilError(t, a.qp.Close())
		assert.Equal(t, time.Since(start), time.Duration(0))
		time.Sleep(2 * time.Hour)
		a.quiet() // a queue pair that is closed completes nothing
	})
}
