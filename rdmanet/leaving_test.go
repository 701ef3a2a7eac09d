package rdmanet

import (
	"errors"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestNoRingAfterTheEnd: an end that has got the end of the stream offers no larger ring, which the
// peer would answer after it has disconnected.
func TestNoRingAfterTheEnd(t *testing.T) {
	client, server := ends(t)
	_, err := client.Write([]byte("x"))
	assert.NilError(t, err)
	assert.NilError(t, client.CloseWrite())
	server.mu.Lock()
	for !server.in.eof {
		server.wait(&server.readable)
	}
	server.in.growth = growthBegun
	server.pin()
	server.mu.Unlock()
	server.growRecv()
	server.mu.Lock()
	growth, offers := server.in.growth, server.in.larger.lmr != nil
	server.mu.Unlock()
	assert.Equal(t, growth, growthOver)
	assert.Assert(t, !offers)
	assert.NilError(t, server.Close())
	client.Close()
	until(t, "the larger ring stays registered", func() bool { return isFreed(t, server) })
}

// TestNothingAfterClosed: an end whose Close the peer has answered sends nothing more, and reports
// no lost bytes, whatever the peer still sends.
func TestNothingAfterClosed(t *testing.T) {
	Drain(t.Context()) // clears what connections of other tests have lost
	client, _ := ends(t)
	_, err := client.Write(make([]byte, 1000))
	assert.NilError(t, err)
	client.mu.Lock()
	client.closed = true
	client.d.block()
	client.linger.begin(func() bool { return true })
	unknown := client.out.freed < client.out.appended
	from := client.peer.ring
	from.size *= 2
	for _, m := range []control{{kind: kindClosed}, {kind: kindRing, value: from.addr, key: from.key, size: from.size}} {
		m.slots, m.limit = client.out.acked, client.out.limit
		err = errors.Join(err, client.control(m))
		client.push()
	}
	dead, why := client.state == stateDead, client.err
	client.mu.Unlock()
	assert.NilError(t, err)
	assert.Assert(t, unknown, "the Write has a completion of its own")
	assert.Assert(t, !dead, "%v", why)
	select {
	case <-client.linger.done:
	case <-time.After(hostilePatience):
		t.Fatal("the connection has not ended")
	}
	assert.Equal(t, client.Stats().BytesLost, uint64(0))
	assert.NilError(t, Drain(t.Context()))
}

// TestWasteOfReader: after Close a peer may send wasteMost bytes that are discarded, and again as
// many whenever it has read something itself.
func TestWasteOfReader(t *testing.T) {
	client, _ := ends(t)
	client.mu.Lock()
	defer client.mu.Unlock()
	client.closed = true
	defer func() { client.closed = false }()
	for range 2 {
		assert.NilError(t, client.discarded(wasteMost))
		assert.ErrorContains(t, client.discarded(1), "it reads nothing")
		client.out.limit -= 8
		read := control{kind: kindCredit, slots: client.out.acked, limit: client.out.limit + 8, value: minRing}
		assert.NilError(t, client.control(read))
	}
}
