package verbsfabric

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"
	"pgregory.net/rapid"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// TestPrivateDataRoom takes data of every length and content out of its padded room.
func TestPrivateDataRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{roomRequest, roomReply}).Draw(t, "room")
		data := rapid.SliceOfN(rapid.Byte(), 0, size).Draw(t, "data")
		room := make([]byte, size)
		copy(room, data)
		got, padded := unpack(room, len(data), false)
		assert.Assert(t, bytes.Equal(got, data) && !padded && cap(got) == len(data))
		got, padded = unpack(room, -1, false)
		assert.Assert(t, bytes.Equal(got, room) && padded, "nobody has told the length")
		got, padded = unpack(data, -1, true)
		assert.Assert(t, bytes.Equal(got, data) && !padded, "iWARP")

		wire := make([]byte, roomReject)
		data = data[:min(len(data), maxRejectData)]
		copy(wire, packReject(data, true))
		got, padded, byConsumer := unpackReject(wire, false)
		assert.Assert(t, bytes.Equal(got, data) && !padded && byConsumer)
	})
}

// TestPrivateDataLies: a length that the room belies is none.
func TestPrivateDataLies(t *testing.T) {
	room := append([]byte("raw data"), make([]byte, roomRequest-8)...)
	for _, n := range []int{-1, 0, 7, roomRequest + 1, 255} {
		got, padded := unpack(room, n, false)
		assert.Assert(t, bytes.Equal(got, room) && padded, "%d", n)
	}
	for _, n := range []int{8, 9, roomRequest} {
		got, padded := unpack(room, n, false)
		assert.Assert(t, bytes.Equal(got, room[:n]) && !padded, "%d", n)
	}
	got, padded := unpack(nil, -1, false)
	assert.Assert(t, len(got) == 0 && padded)

	wire := append([]byte("\xDA\x7A\xC3\x02yes"), make([]byte, roomReject-7)...)
	_, _, byConsumer := unpackReject(wire, false)
	assert.Assert(t, !byConsumer, "there are 3 bytes, not 2")
	wire[3] = 255
	_, _, byConsumer = unpackReject(wire, false)
	assert.Assert(t, !byConsumer)
}

func TestRejectMarker(t *testing.T) {
	wire := packReject([]byte("busy"), false)
	assert.Equal(t, string(wire), "\x02\x00\x02\x00busy", "the bytes of OpenFabrics DAPL")
	data, padded, byConsumer := unpackReject(wire, true)
	assert.Assert(t, byConsumer && !padded, "iWARP")
	assert.Equal(t, string(data), "busy")
	// OpenFabrics DAPL's own: marker, data, padding.
	wire = append([]byte{2, 0, 2, 0, 'n', 'o'}, make([]byte, roomReject-6)...)
	data, padded, byConsumer = unpackReject(wire, false)
	assert.Assert(t, byConsumer && padded)
	assert.Assert(t, bytes.Equal(data, wire[4:]))
	for _, other := range [][]byte{nil, make([]byte, roomReject)} {
		data, padded, byConsumer = unpackReject(other, false)
		assert.Assert(t, !byConsumer && !padded && data == nil, "%x", other)
	}
	for _, other := range [][]byte{{2, 0, 2}, {2, 0, 2, 1, 0}, {0xDA, 0x7A, 0xC3}, []byte("go away")} {
		data, padded, byConsumer = unpackReject(other, false)
		assert.Assert(t, !byConsumer && padded && bytes.Equal(data, other), "%x", other)
	}
	assert.Assert(t, isConsumerReject(28) && isConsumerReject(-111) && !isConsumerReject(8))
}

// padded is data in a room of n bytes.
func inRoom(data string, n int) []byte { return append([]byte(data), make([]byte, n-len(data))...) }

// legacy opens the device for a test with a peer that knows nothing of lengths; iWARP tells them by
// itself.
func legacy(t *testing.T) *opened {
	o := openDevice(t)
	if o.dev.iwarp {
		t.Skip("iWARP tells the length")
	}
	return o
}

// call sends a connection request as any other program does.
func (r *raw) call(o *opened, to fabric.Listener, p cverbs.ConnParam) {
	r.t.Helper()
	assert.NilError(r.t, r.id.ResolveAddr(noAddr, to.Addr(), patience))
	r.event(cverbs.CMEventAddrResolved)
	assert.NilError(r.t, r.id.ResolveRoute(patience))
	r.event(cverbs.CMEventRouteResolved)
	p.QPNum, p.RetryCount = o.newQP().Num(), 7
	assert.NilError(r.t, r.id.Connect(p))
}

// TestLegacyActive plays the C program that connects: what it sends arrives as the whole room and
// says so, and nothing but the Consumer's data is in the room of what it gets.
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

// TestLegacyPassive plays the C program that listens: the room of what it gets holds the Consumer's
// data and zeroes, and what it sends is reported as the whole room and says so.
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

// TestToldLengthLies: a peer that tells a length that its data belies is taken for one that tells
// none.
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
	// Real options of a vendor are not lengths.
	peer := newRaw(t)
	assert.NilError(t, peer.id.SetLocalECE(cverbs.ECE{VendorID: 0x02c9, Options: tag<<24 | 3}))
	peer.call(o, l, cverbs.ConnParam{PrivateData: []byte("raw")})
	r := receive(t, requests)
	_, padded := r.Private()
	assert.Assert(t, padded)
	assert.NilError(t, r.Reject(nil, true))
}
