package rdmanet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

const hostilePatience = 60 * time.Second

// hostileDevices are mem0 and the devices of the environment; see onEach.
func hostileDevices() []string {
	env := os.Getenv("GODAT_TEST_DEVICE")
	switch {
	case env == "":
		return []string{"mem0"}
	case testing.Short():
		return strings.Split(env, ",")
	}
	return append([]string{"mem0"}, strings.Split(env, ",")...)
}

// addrOf returns an address whose type depends on the device.
func addrOf(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }

// raw is a peer that is written on udat. It sends what the test wants.
type raw struct {
	t    *testing.T
	evd  *udat.EVD
	ep   *udat.EP
	mem  *udat.LMR
	peer hello
	imm  bool
}

// connectRaw connects to a listener with the given private data; the error is the peer's refusal.
func connectRaw(t *testing.T, dev string, to netip.AddrPort, private func(h hello) []byte) (*raw, error) {
	ia, err := udat.Open(dev)
	assert.NilError(t, err)
	t.Cleanup(func() { ia.Close(udat.CloseAbrupt) })
	pz, err := ia.CreatePZ()
	assert.NilError(t, err)
	r := &raw{t: t}
	_, _, p, err := ia.Query()
	assert.NilError(t, err)
	r.imm = p.Specific(udat.AttrImmediateData) == "TRUE"
	r.evd, err = ia.CreateEVD(256, udat.EVDDTO|udat.EVDConnection, nil)
	assert.NilError(t, err)
	r.ep, err = ia.CreateEP(pz, r.evd, r.evd, r.evd, &udat.EPAttr{MaxRecvDTOs: 64, MaxRequestDTOs: 64})
	assert.NilError(t, err)
	r.mem, err = ia.AllocLMR(pz, 64<<10, udat.PrivAll)
	assert.NilError(t, err)
	for i := range 64 {
		assert.NilError(t, r.ep.PostRecv([]udat.LMRTriplet{r.mem.Triplet(32<<10+i*64, 64)}, 0, udat.CompletionDefault))
	}
	m := r.mem.RMRTriplet(0, 4096)
	h := hello{immediate: r.imm, slots: 32, ring: remoteRing{m.TargetAddress, m.RMRContext, 4096}}
	assert.NilError(t, r.ep.Connect(to.Addr(), udat.ConnQual(to.Port()), hostilePatience, private(h), udat.QoSBestEffort,
		udat.ConnectDefault))
	for {
		ev, _, err := r.evd.Wait(hostilePatience, 1)
		assert.NilError(t, err)
		switch ev.Number {
		case udat.EventDTOCompletion:
		case udat.EventConnectionEstablished:
			r.peer, err = decodeHello(ev.PrivateData())
			assert.NilError(t, err)
			return r, nil
		default:
			return nil, errors.New(ev.Number.String() + " " + string(ev.PrivateData()))
		}
	}
}

// send sends a message of raw bytes.
func (r *raw) send(b []byte) {
	n := copy(r.mem.Bytes()[8<<10:], b)
	assert.NilError(r.t, r.ep.PostSend([]udat.LMRTriplet{r.mem.Triplet(8<<10, n)}, 0, udat.CompletionDefault))
	ev, _, err := r.evd.Wait(hostilePatience, 1) // waits, because the memory is used again
	for err == nil && ev.Number == udat.EventDTOCompletion && ev.Operation != udat.DTOSend {
		ev, _, err = r.evd.Wait(hostilePatience, 1)
	}
	assert.NilError(r.t, err)
}

func (r *raw) control(m control) {
	b := make([]byte, controlSize)
	m.encode(b)
	r.send(b)
}

func (r *raw) credit() { r.control(control{kind: kindCredit, limit: 4096, value: 4096}) }

// says returns an attack of one control message.
func says(m control) func(r *raw) { return func(r *raw) { r.control(m) } }

// TestHostilePeer has peers that break the protocol: each loses its connection, with an error that
// says why, and a good connection of the same listener goes on.
func TestHostilePeer(t *testing.T) {
	attacks := map[string]struct {
		want string
		do   func(r *raw)
	}{
		"no message":           {"0 bytes, must have 32", func(r *raw) { r.send(nil) }},
		"short message":        {"31 bytes, must have 32", func(r *raw) { r.send(make([]byte, 31)) }},
		"unknown kind":         {"kind 0", func(r *raw) { r.send(make([]byte, controlSize)) }},
		"kind beyond a byte":   {"kind 257", func(r *raw) { r.send([]byte{0, 0, 1, 1, 31: 0}) }},
		"limit shrinks":        {"may be written", says(control{kind: kindCredit, limit: 4095})},
		"window of nothing":    {"a window of 0 bytes", says(control{kind: kindCredit, limit: 4096})},
		"window beyond ring":   {"a window of 4097 bytes", says(control{kind: kindCredit, limit: 4096, value: 4097})},
		"limit beyond ring":    {"may be written", says(control{kind: kindCredit, limit: 4097})},
		"receives not used":    {"receives are posted again", says(control{kind: kindCredit, slots: 99, limit: 4096})},
		"receives go back":     {"receives are posted again", says(control{kind: kindCredit, slots: 1<<32 - 1, limit: 4096})},
		"write beyond credit":  {"bytes are written", says(control{kind: kindData, limit: 4096, value: 1 << 20})},
		"write of a huge size": {"bytes are written", says(control{kind: kindData, limit: 4096, value: 1<<64 - 1})},
		"empty write":          {"bytes are written", says(control{kind: kindData, limit: 4096})},
		"wrong end":            {"the stream ends after 5", says(control{kind: kindFin, limit: 4096, value: 5})},
		"answer unasked":       {"was not sent", says(control{kind: kindClosed, limit: 4096})},
		"data after the end": {"after the end", func(r *raw) {
			r.control(control{kind: kindFin, limit: 4096})
			r.control(control{kind: kindData, limit: 4096, value: 5})
		}},
		"message with immediate data": {"may be written", func(r *raw) {
			m := control{kind: kindCredit, limit: 4095}
			if !r.imm { // by the other form
				r.control(m)
				return
			}
			m.encode(r.mem.Bytes()[8<<10:])
			assert.NilError(r.t, r.ep.PostSendImmediate([]udat.LMRTriplet{r.mem.Triplet(8<<10, controlSize)}, 0, 7,
				udat.CompletionDefault))
		}},
		"immediate beyond credit": {"bytes are written", func(r *raw) {
			if !r.imm { // by the other form
				r.control(control{kind: kindData, limit: 4096, value: 1<<20 - 1})
				return
			}
			iov := []udat.LMRTriplet{r.mem.Triplet(0, 1)}
			to := udat.RMRTriplet{RMRContext: r.peer.ring.key, TargetAddress: r.peer.ring.addr, SegmentLength: 1}
			assert.NilError(r.t, r.ep.PostRDMAWriteImmediate(iov, 0, to, immediate(1<<20-1, 0), udat.CompletionDefault))
		}},
	}
	for _, dev := range hostileDevices() {
		lc := ListenConfig{Device: dev}
		l, err := lc.Listen(t.Context(), Network, ":0")
		assert.NilError(t, err)
		defer l.Close()
		good, err := (&Dialer{Device: dev}).Dial(t.Context(), Network, l.Addr().String())
		assert.NilError(t, err)
		defer good.Close()
		goodServer, err := l.AcceptConn()
		assert.NilError(t, err)
		defer goodServer.Close()
		for name, attack := range attacks {
			t.Run(dev+"/"+name, func(t *testing.T) {
				r, err := connectRaw(t, dev, addrOf(l.Addr()), hello.encode)
				assert.NilError(t, err)
				r.credit()
				c, err := l.AcceptConn()
				assert.NilError(t, err)
				defer c.Close()
				attack.do(r)
				assert.NilError(t, c.SetReadDeadline(time.Now().Add(hostilePatience)))
				_, err = io.ReadAll(c)
				if name == "data after the end" { // Read reports the end first
					_, err = c.Write([]byte("x"))
					for end := time.Now().Add(hostilePatience); err == nil && time.Now().Before(end); {
						time.Sleep(time.Millisecond)
						_, err = c.Write([]byte("x"))
					}
				}
				assert.ErrorContains(t, err, attack.want)
				_, err = good.Write([]byte("y"))
				assert.NilError(t, err)
				_, err = io.ReadFull(goodServer, make([]byte, 1))
				assert.NilError(t, err)
			})
		}
	}
}

// TestHostileHello has peers with a wrong hello. They are rejected with the reason.
func TestHostileHello(t *testing.T) {
	hellos := map[string]struct {
		want    string
		private func(h hello) []byte
	}{
		"nothing":       {"no program of package rdmanet", func(hello) []byte { return nil }},
		"short":         {"no program of package rdmanet", func(h hello) []byte { return []byte("RDN3") }},
		"other version": {"version '5'", func(h hello) []byte { b := h.encode(); b[3] = '5'; return b }},
		"no ring":       {"ring has 0 bytes", func(h hello) []byte { h.ring.size = 0; return h.encode() }},
		"odd ring":      {"ring has 4097 bytes", func(h hello) []byte { h.ring.size = 4097; return h.encode() }},
		"huge ring":     {"ring has", func(h hello) []byte { h.ring.size = 1 << 62; return h.encode() }},
		"no receives":   {"0 receives", func(h hello) []byte { h.slots = 0; return h.encode() }},
		"many receives": {"60000 receives", func(h hello) []byte { h.slots = 60000; return h.encode() }},
		"end of memory": {"address space", func(h hello) []byte { h.ring.addr = 1<<64 - 1; return h.encode() }},
	}
	for _, dev := range hostileDevices() {
		lc := ListenConfig{Device: dev}
		l, err := lc.Listen(t.Context(), Network, ":0")
		assert.NilError(t, err)
		defer l.Close()
		for name, h := range hellos {
			t.Run(dev+"/"+name, func(t *testing.T) {
				_, err := connectRaw(t, dev, addrOf(l.Addr()), h.private)
				assert.ErrorContains(t, err, "PEER_REJECTED")
				assert.ErrorContains(t, err, h.want)
			})
		}
	}
}
