package udat_test

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// hostile returns contents of private data that could be confused with a length or marker stored in
// the same field.
func hostile(n int) map[string][]byte {
	counting := make([]byte, n)
	for i := range counting {
		counting[i] = byte(i + 1)
	}
	trailer, marker := bytes.Clone(counting), bytes.Clone(counting)
	copy(trailer[max(n-4, 0):], "\xDA\x7A\xC3\x05")
	copy(marker, "\x02\x00\x02\x00")
	return map[string][]byte{
		"counting": counting, "an old trailer": trailer, "a marker": marker, "zeroes": make([]byte, n),
		"ones": bytes.Repeat([]byte{0xFF}, n),
	}
}

func privateSizes(t *testing.T, ia *udat.IA) (most, reject int) {
	t.Helper()
	_, _, p, err := ia.Query()
	assert.NilError(t, err)
	d := udat.DeviceAttr(ia)
	assert.DeepEqual(t, []int{p.MaxPrivateDataSize, p.MaxRejectDataSize}, []int{d.MaxConnData, d.MaxRejectData})
	least := 56 // the size of the field in a request on InfiniBand
	if !d.Acknowledged {
		least = 64 // DAT's, on iWARP
	}
	assert.Assert(t, p.MaxPrivateDataSize >= least && p.MaxRejectDataSize >= 140, "%+v", p)
	return p.MaxPrivateDataSize, p.MaxRejectDataSize
}

// TestPrivateData carries data of every length up to 56 bytes, and of the greatest lengths, with
// hostile contents, by connect, accept and reject: it arrives unchanged, and is not marked as
// padded.
func TestPrivateData(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		most, rejects := privateSizes(t, a.ia)
		dup := a.another(nil)
		same := func(what string, got []byte, padded bool, want []byte) {
			t.Helper()
			assert.Assert(t, bytes.Equal(got, want) && !padded, "%s: %d bytes %x (padded: %v), want %d bytes %x", what,
				len(got), got, padded, len(want), want)
		}
		// the private data of ESTABLISHED stays valid as long as the endpoint has the connection
		type kept struct{ got, want []byte }
		var all []kept
		asked := func(out []byte) *udat.CR {
			t.Helper()
			sent := bytes.Clone(out)
			cr := ask(t, a, b, sent)
			clear(sent)
			p, err := cr.Query()
			assert.NilError(t, err)
			same("connect", p.PrivateData, p.PrivateDataPadded, out)
			assert.Equal(t, p.PrivateDataSize, len(out))
			return cr
		}
		accept := func(out, back []byte) {
			t.Helper()
			refused(t, a.ep.Connect(b.ia.Addr(), 4711, patience, make([]byte, most+1), 0, 0), udat.InvalidParameter,
				udat.SubArg5)
			cr := asked(out)
			assert.Equal(t, state(t, a.ep), udat.EPActiveConnectionPending)
			refused(t, cr.Accept(b.ep, make([]byte, most+1)), udat.InvalidParameter, udat.SubArg3)
			sent := bytes.Clone(back)
			assert.NilError(t, cr.Accept(b.ep, sent))
			clear(sent)
			ev := expect(t, a.conn, udat.EventConnectionEstablished)
			same("accept", ev.PrivateData(), ev.PrivateDataPadded(), back)
			assert.Equal(t, ev.EP, a.ep)
			assert.Equal(t, len(expect(t, b.conn, udat.EventConnectionEstablished).PrivateData()), 0)
			assert.Equal(t, state(t, a.ep), udat.EPConnected)
			assert.Equal(t, state(t, b.ep), udat.EPConnected)
			refused(t, dup.DupConnect(a.ep, patience, make([]byte, most+1), 0), udat.InvalidParameter, udat.SubArg4)
			assert.Equal(t, state(t, dup), udat.EPUnconnected)
			part(t, b, a, udat.CloseAbrupt)
			all = append(all, kept{ev.PrivateData(), back})
			assert.NilError(t, a.ep.Reset())
			assert.NilError(t, b.ep.Reset())
		}
		reject := func(out, back []byte) {
			t.Helper()
			cr := asked(out)
			refused(t, cr.Reject(make([]byte, rejects+1)), udat.InvalidParameter, udat.SubArg2)
			sent := bytes.Clone(back)
			assert.NilError(t, cr.Reject(sent))
			clear(sent)
			ev := expect(t, a.conn, udat.EventConnectionPeerRejected)
			same("reject", ev.PrivateData(), ev.PrivateDataPadded(), back)
			assert.NilError(t, a.ep.Reset())
		}
		for n := range 57 {
			for name, out := range hostile(n) {
				if name == "counting" || n >= 52 {
					reject(out, hostile(rejects - n)[name])
				}
			}
			if n%7 == 0 {
				accept(hostile(n)["counting"], hostile(most - n)["counting"])
			}
		}
		for name, out := range hostile(most) {
			accept(out, hostile(most)[name])
			accept(out, hostile(most - 1)[name])
			accept(out, hostile(5)[name])
			reject(out, hostile(4)[name])
		}
		for i, k := range all {
			assert.Assert(t, bytes.Equal(k.got, k.want), "of connection %d, after %d others", i, len(all)-i-1)
		}
		rule.Proves(t, "EP-CONNECT-04", "EP-CONNECT-05", "EP-CONNECT-08", "EPST-12", "EPST-13",
			"EPST-25", "CR-ACCEPT-02",
			"OBJ-07", "EVD-WAIT-25", "EVD-WAIT-26", "EVD-WAIT-27",
			"EVD-WAIT-28", "GAP-43", "GAP-44", "EVT-04")
	})
}

// TestPrivateDataStays: the private data of ESTABLISHED stays valid in all states of the
// connection.
func TestPrivateDataStays(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		a, b := newEnd(t, dev, setup{script: &script}), newEnd(t, dev, setup{})
		const want = "the answer"
		assert.NilError(t, ask(t, a, b, nil).Accept(b.ep, []byte(want)))
		expect(t, b.conn, udat.EventConnectionEstablished)
		ev := expect(t, a.conn, udat.EventConnectionEstablished)
		b.receive(0, 2)
		hidden := script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop() // so that any device stays in
		assert.NilError(t, a.ep.PostSend(nil, 1, 0))                                  // DISCONNECT_PENDING
		completion(t, b.recv, 2)
		assert.NilError(t, a.ep.Disconnect(udat.CloseGraceful))
		assert.Equal(t, state(t, a.ep), udat.EPDisconnectPending)
		pair(t, dev, setup{}) // others come and go
		assert.Equal(t, string(ev.PrivateData()), want)
		hidden.Stop()
		completion(t, a.request, 1)
		expect(t, a.conn, udat.EventConnectionDisconnected)
		assert.Equal(t, state(t, a.ep), udat.EPDisconnected)
		assert.Equal(t, string(ev.PrivateData()), want)
		rule.Proves(t, "OBJ-07", "EVD-WAIT-26")
	})
}

// TestPrivateDataPadded: if the fabric does not know the length, the data is marked as padded. A
// reject by a program that is no Consumer reports its data.
func TestPrivateDataPadded(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		for kind, want := range map[fabric.ConnEventKind]udat.EventNumber{
			fabric.EventEstablished: udat.EventConnectionEstablished, fabric.EventPeerRejected: udat.EventConnectionPeerRejected,
			fabric.EventRejected: udat.EventConnectionNonPeerRejected,
		} {
			for _, padded := range []bool{false, true} {
				e, _ := inState(t, dev, udat.EPActiveConnectionPending, setup{})
				e.ep.Late()(fabric.ConnEvent{Kind: kind, Private: []byte("raw\x00"), Padded: padded})
				ev := expect(t, e.conn, want)
				assert.Equal(t, string(ev.PrivateData()), "raw\x00")
				assert.Equal(t, ev.PrivateDataPadded(), padded)
			}
		}
		for _, kind := range []fabric.ConnEventKind{fabric.EventUnreachable, fabric.EventFailed, fabric.EventDisconnected} {
			e, _ := inState(t, dev, udat.EPActiveConnectionPending, setup{})
			e.ep.Late()(fabric.ConnEvent{Kind: kind, Private: []byte("raw\x00"), Padded: true})
			ev := next(t, e.conn)
			assert.Assert(t, ev.PrivateData() == nil && !ev.PrivateDataPadded(), describe(ev))
		}
		rule.Proves(t, "EVT-04")
	})
}
