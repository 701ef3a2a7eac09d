package cverbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// The protocol of rping (rdmacm-utils): a side describes a buffer in a message of 16 bytes:
// address, key and length in network byte order. The client describes its source buffer; the server
// reads it and answers with any message. Then the client describes its sink buffer; the server
// writes the text to it and answers again. The client's text counts up and wraps.

type rpingPeer struct {
	*end
	ch *EventChannel
	id *CMID
}

const (
	rpingRecvAt = 0  // where messages arrive
	rpingSendAt = 16 // where messages are composed
	rpingDataAt = 1024
	rpingSinkAt = 8192
)

func (p *rpingPeer) advertise(off, n int) {
	p.t.Helper()
	b := p.buf[rpingSendAt:]
	binary.BigEndian.PutUint64(b, p.mr.Addr()+uint64(off))
	binary.BigEndian.PutUint32(b[8:], p.mr.RKey())
	binary.BigEndian.PutUint32(b[12:], uint32(n))
	p.send(SendWR{Opcode: OpSend}, p.sge(rpingSendAt, 16))
	p.sent()
}

// message returns the peer's next message, and posts the receive for the following message.
func (p *rpingPeer) message() (addr uint64, key uint32, n int, ok bool) {
	p.t.Helper()
	wc := poll(p.t, p.rcq, 1)[0]
	if wc.Status == WCWRFlushErr {
		return 0, 0, 0, false
	}
	assert.Equal(p.t, wc.Status, WCSuccess)
	b := bytes.Clone(p.buf[rpingRecvAt : rpingRecvAt+16])
	p.recv(1, p.sge(rpingRecvAt, 16))
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), int(binary.BigEndian.Uint32(b[12:])), true
}

// run starts rping in its own process and returns it with its output.
func run(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	path, err := exec.LookPath("rping")
	if err != nil {
		if os.Getenv("GODAT_TEST_DEVICE") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var out bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, &out
}

// A server that uses this package serves rping -c.
func TestRpingServer(t *testing.T) {
	ctx := openDevice(t)
	notOnLoop(t, ctx)
	addr := localAddr(t, ctx)
	p := &rpingPeer{end: newEnd(t, ctx)}
	ch, lid := listen(t, addr)
	const rounds, size = 10, 2000
	cmd, out := run(t, "-c", "-a", addr.String(), "-p", fmt.Sprint(lid.LocalAddr().Port()), "-C", fmt.Sprint(rounds),
		"-S", fmt.Sprint(size), "-V", "-v")

	p.id = closing[*CMID](t)(want(t, ch, CMEventConnectRequest).ID, nil)
	p.recv(1, p.sge(rpingRecvAt, 16))
	drive(t, p.id, p.qp, QPStateRTR, QPStateRTS)
	assert.NilError(t, p.id.Accept(ConnParam{ResponderResources: 1, InitiatorDepth: 1, RNRRetryCount: 7,
		QPNum: p.qp.Num()}))
	want(t, ch, CMEventEstablished)
	n := 0
	for ; n < rounds; n++ {
		addr, key, length, ok := p.message()
		if !ok {
			break
		}
		p.send(SendWR{Opcode: OpRDMARead, RemoteAddr: addr, RKey: key}, p.sge(rpingDataAt, length))
		p.sent()
		assert.Equal(t, length, size)
		assert.Assert(t, bytes.HasPrefix(p.buf[rpingDataAt:], fmt.Appendf(nil, "rdma-ping-%d: ", n)), "%q",
			p.buf[rpingDataAt:rpingDataAt+30])
		p.advertise(0, 0) // go ahead
		addr, key, length, _ = p.message()
		p.send(SendWR{Opcode: OpRDMAWrite, RemoteAddr: addr, RKey: key}, p.sge(rpingDataAt, length))
		p.sent()
		p.advertise(0, 0)
	}
	assert.Equal(t, n, rounds)
	want(t, ch, CMEventDisconnected)
	assert.NilError(t, p.id.Disconnect())
	assert.NilError(t, cmd.Wait(), "rping: %s", out)
}

// A client that uses this package pings rping -s.
func TestRpingClient(t *testing.T) {
	ctx := openDevice(t)
	notOnLoop(t, ctx)
	addr := localAddr(t, ctx)
	p := &rpingPeer{end: newEnd(t, ctx), ch: closing[*EventChannel](t)(CreateEventChannel())}
	const rounds, size = 10, 1500
	to := netip.AddrPortFrom(addr, 7174)
	cmd, out := run(t, "-s", "-a", addr.String(), "-p", "7174", "-C", fmt.Sprint(rounds), "-S", fmt.Sprint(size), "-V",
		"-v")

	p.recv(1, p.sge(rpingRecvAt, 16))
	for until := soon(); ; time.Sleep(50 * time.Millisecond) { // rping may not listen yet
		p.id = resolve(t, p.ch, to)
		err := p.id.Connect(ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7,
			QPNum: p.qp.Num()})
		if !errors.Is(err, syscall.ECONNREFUSED) { // on iWARP Connect itself may return it
			assert.NilError(t, err)
			ev, err := p.ch.Get(soon())
			assert.NilError(t, err)
			if ev.Type == CMEventConnectResponse {
				drive(t, p.id, p.qp, QPStateRTR, QPStateRTS)
				assert.NilError(t, p.id.Establish())
				break
			}
			if ev.Type == CMEventEstablished && isIWARP(t, ctx) {
				break
			}
			assert.Equal(t, ev.Type, CMEventRejected)
		}
		assert.NilError(t, p.id.Close())
		assert.Assert(t, time.Now().Before(until), "rping never listened: %s", out)
	}
	for n := range rounds {
		text := p.buf[rpingDataAt : rpingDataAt+size] // rping writes back as far as the first NUL
		for i := range text {
			text[i] = 'a' + byte((i+n)%26)
		}
		copy(text, fmt.Sprintf("rdma-ping-%d: ", n))
		text[size-1] = 0
		p.advertise(rpingDataAt, size)
		_, _, _, ok := p.message()
		assert.Assert(t, ok)
		p.advertise(rpingSinkAt, size)
		_, _, _, ok = p.message()
		assert.Assert(t, ok)
		for i, got := range p.buf[rpingSinkAt : rpingSinkAt+size] {
			if got != text[i] { // what rping has printed is what it read
				t.Fatalf("round %d: the sink differs at %d of %d: %q, want %q; rping: %s", n, i, size,
					p.buf[rpingSinkAt+i:rpingSinkAt+size], text[i:], out)
			}
		}
	}
	assert.NilError(t, p.id.Disconnect())
	want(t, p.ch, CMEventDisconnected)
	if err := cmd.Wait(); err != nil {
		t.Log("rping, when its client goes:", err) // as it says to rping -c too
	}
}
