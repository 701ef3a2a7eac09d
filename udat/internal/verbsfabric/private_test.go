package verbsfabric

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// The size of the private data field, the tag of the options that carry a length, and the vendor ID
// that arrives as 0.
const (
	roomRequest = 56
	roomReply   = 196
	roomReject  = 148
	tag         = 0xDA
	noVendor    = 1 << 24
)

// padded is data in a room of n bytes.
func inRoom(data string, n int) []byte { return append([]byte(data), make([]byte, n-len(data))...) }

// legacy opens the device for a test with a peer that sends no length. It skips iWARP, which itself
// carries the length.
func legacy(t *testing.T) *opened {
	o := openDevice(t)
	if o.dev.iwarp {
		t.Skip("iWARP tells the length")
	}
	return o
}

// call sends a connection request like a program without this library.
func (r *raw) call(o *opened, to fabric.Listener, p cverbs.ConnParam) {
	r.t.Helper()
	assert.NilError(r.t, r.id.ResolveAddr(noAddr, to.Addr(), patience))
	r.event(cverbs.CMEventAddrResolved)
	assert.NilError(r.t, r.id.ResolveRoute(patience))
	r.event(cverbs.CMEventRouteResolved)
	p.QPNum, p.RetryCount = o.newQP().Num(), 7
	assert.NilError(r.t, r.id.Connect(p))
}

// TestLegacyActive acts as a C program that connects: its private data arrives as the whole field,
// marked as padded. The field that it receives contains only the Consumer's data and zeroes.
func TestLegacyActive(t *testing.T) {
	o := legacy(t)
	l, requests := o.listen()
	for _, sent := range []string{"", "raw", "looks like a length \x00\xDA\x7A\xC3\x03",
		string(bytes.Repeat([]byte{0xFF}, roomRequest))} {
		peer := newRaw(t)
		peer.call(o, l, cverbs.ConnParam{PrivateData: []byte(sent)})
		r := receive(t, requests)
		data, padded := r.Private()
		assert.Assert(t, bytes.Equal(data, inRoom(sent, roomRequest)) && padded, "%q", data)
		assert.NilError(t, r.Reject([]byte("busy"), true))
		ev := peer.event(cverbs.CMEventRejected)
		assert.Equal(t, ev.Status, cverbs.RejectConsumerDefined)
		assert.DeepEqual(t, ev.PrivateData, inRoom("\x02\x00\x02\x00busy", roomReject))
	}
	for _, back := range []string{"", "welcome", string(bytes.Repeat([]byte{0xFF}, roomReply))} {
		peer := newRaw(t)
		peer.call(o, l, cverbs.ConnParam{})
		events := make(chan fabric.ConnEvent, 16)
		c, err := receive(t, requests).Accept(o.newQP(), fabric.AcceptParams{Private: []byte(back)},
			func(ev fabric.ConnEvent) { events <- ev })
		assert.NilError(t, err)
		ev := peer.event(cverbs.CMEventConnectResponse)
		assert.DeepEqual(t, ev.PrivateData, inRoom(back, roomReply))
		ece, err := peer.id.RemoteECE()
		assert.NilError(t, err)
		assert.Equal(t, ece, cverbs.ECE{})
		assert.NilError(t, c.Close())
	}
}

// TestLegacyPassive acts as a C program that listens: the field that it receives contains the
// Consumer's data and zeroes, and its own private data is reported as the whole field, marked as
// padded.
func TestLegacyPassive(t *testing.T) {
	o := legacy(t)
	peer := newRaw(t)
	addr := peer.listen(o.dev.info.Addr)
	for n := range roomRequest + 1 {
		data := bytes.Repeat([]byte{0xDA}, n)
		conn, events := o.connect(addr, data...)
		ev := peer.event(cverbs.CMEventConnectRequest)
		assert.DeepEqual(t, ev.PrivateData, inRoom(string(data), roomRequest))
		ece, err := ev.ID.RemoteECE()
		assert.NilError(t, err)
		assert.Equal(t, ece.VendorID, uint32(0), "no peer takes the length for options of its vendor")
		if n%2 == 0 {
			assert.NilError(t, ev.ID.Accept(cverbs.ConnParam{QPNum: o.newQP().Num(), PrivateData: data}))
			peer.event(cverbs.CMEventEstablished)
			up := receive(t, events)
			assert.Equal(t, up.Kind, fabric.EventEstablished)
			assert.Assert(t, bytes.Equal(up.Private, inRoom(string(data), roomReply)) && up.Padded)
		} else {
			assert.NilError(t, ev.ID.Reject(data))
			no := receive(t, events)
			assert.Equal(t, no.Kind, fabric.EventRejected, "it has no marker")
			assert.Assert(t, bytes.Equal(no.Private, inRoom(string(data), roomReject)) && no.Padded)
		}
		assert.NilError(t, conn.Close())
		if n%2 == 0 {
			peer.event(cverbs.CMEventDisconnected)
		}
		assert.NilError(t, ev.ID.Close())
	}
}

// TestToldLengthLies: if the length that a peer sends contradicts its data, the length is ignored.
func TestToldLengthLies(t *testing.T) {
	o := legacy(t)
	l, requests := o.listen()
	for options, padded := range map[uint32]bool{
		tag<<24 | 3: false, tag<<24 | 0xffff<<8 | 56: false, tag<<24 | 2: true, tag<<24 | 57: true, tag<<24 | 255: true,
		3: true, 0xFFFFFFFF: true,
	} {
		peer := newRaw(t)
		assert.NilError(t, peer.id.SetLocalECE(cverbs.ECE{VendorID: noVendor, Options: options}))
		peer.call(o, l, cverbs.ConnParam{PrivateData: []byte("raw")})
		r := receive(t, requests)
		data, got := r.Private()
		assert.Equal(t, got, padded, "%x", options)
		assert.Equal(t, string(bytes.TrimRight(data, "\x00")), "raw")
		assert.Assert(t, len(data) == int(options&0xFF) || padded && len(data) == roomRequest, "%d", len(data))
		assert.NilError(t, r.Reject(nil, true))
		peer.event(cverbs.CMEventRejected)
	}
	// Options with a real vendor ID are not lengths.
	peer := newRaw(t)
	assert.NilError(t, peer.id.SetLocalECE(cverbs.ECE{VendorID: 0x02c9, Options: tag<<24 | 3}))
	peer.call(o, l, cverbs.ConnParam{PrivateData: []byte("raw")})
	r := receive(t, requests)
	_, padded := r.Private()
	assert.Assert(t, padded)
	assert.NilError(t, r.Reject(nil, true))
}
