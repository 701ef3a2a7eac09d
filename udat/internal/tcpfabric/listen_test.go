package tcpfabric

import (
	"net"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestStrangers: the bounds of a listener follow the files that the process may have open.
func TestStrangers(t *testing.T) {
	for files, want := range map[uint64][2]int{0: {8, 7}, 1024: {256, 224}, 1 << 20: {4096, 3584}} {
		all, ofSource := strangers(files)
		assert.Equal(t, [2]int{all, ofSource}, want)
	}
}

// TestUnansweredRequests: requests that the program does not answer are bounded, and one address
// has a part of them. More are rejected, and those of other addresses come. An answer makes room.
func TestUnansweredRequests(t *testing.T) {
	v := newVictim(t)
	requests := make(chan fabric.Request, 16)
	l, err := v.dev.Listen(0, nil, func(r fabric.Request) { requests <- r })
	assert.NilError(t, err)
	defer l.Close()
	own := l.(*listener)
	own.mu.Lock()
	own.all, own.ofSource = strangers(0)
	own.mu.Unlock()
	ask := func(from net.IP) *peer {
		c, err := net.DialTCP("tcp", &net.TCPAddr{IP: from}, net.TCPAddrFromAddrPort(l.Addr()))
		if err != nil {
			t.Skip("one loopback address only: ", err)
		}
		t.Cleanup(func() { c.Close() })
		p := &peer{Conn: c, t: t}
		request := setup(extended)
		frame, err := request.Append(nil)
		assert.NilError(t, err)
		p.bytes(frame)
		return p
	}
	flood, other := net.IPv4(127, 0, 0, 2), net.IPv4(127, 0, 0, 1)
	var got []fabric.Request
	for range 7 {
		ask(flood)
		got = append(got, <-requests)
	}
	for range 3 {
		reply := ask(flood).reply()
		assert.Assert(t, reply.Reject && reply.Busy)
	}
	ask(other)
	got = append(got, <-requests)
	assert.Assert(t, ask(other).reply().Reject) // of all
	for range 3 {
		assert.NilError(t, got[0].Reject(nil, true))
		got = got[1:]
		ask(flood)
		got = append(got, <-requests)
	}
	for _, r := range got {
		assert.NilError(t, r.Reject(nil, true))
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	assert.Equal(t, own.asked.all+len(own.asked.of), 0)
}
