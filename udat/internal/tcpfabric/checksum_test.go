package tcpfabric

import (
	"net"
	"net/netip"
	"testing"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/tcpfabric/iwarp"
	"gotest.tools/v3/assert"
)

// TestChecksums: both ends use checksums if one of them asks for them. On the loopback interface an
// end asks only if its option says so.
func TestChecksums(t *testing.T) {
	on, off := true, false
	for _, c := range []struct {
		option *bool
		peer   bool // whether the peer asks for checksums
		want   bool
	}{
		{nil, false, false}, {nil, true, true}, {&on, false, true}, {&on, true, true}, {&off, false, false},
		{&off, true, true},
	} {
		v := newVictimWith(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: c.option})
		p := v.dial()
		request := setup(0)
		request.CRC = c.peer
		assert.Equal(t, p.connect(request).CRC, c.want)
		s := v.session()
		p.write(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(0)}, []byte("summed"))
		p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 1, SinkKey: 1, Length: 6, Key: v.mr.RKey(), Offset: v.at(0)}, nil)
		s.expect(fabric.EventEstablished)
		h, payload := p.read() // read checks the checksum
		assert.Equal(t, h.Op, iwarp.OpReadResponse)
		assert.Equal(t, string(payload), "summed")

		// A frame with a wrong checksum ends the connection if there are checksums. Otherwise it is
		// accepted.
		wrong := frame(iwarp.Header{Op: iwarp.OpWrite, Last: true, Key: v.mr.RKey(), Offset: v.at(0)}, []byte("forged"), true)
		wrong[len(wrong)-1] ^= 1
		p.bytes(wrong)
		if c.want {
			p.terminatedWith(iwarp.FaultCRC)
			assert.Equal(t, string(v.room()[:6]), "summed")
		} else {
			p.write(iwarp.Header{Op: iwarp.OpReadRequest, MSN: 2, SinkKey: 1, Length: 6, Key: v.mr.RKey(), Offset: v.at(0)}, nil)
			_, payload = p.read()
			assert.Equal(t, string(payload), "forged")
		}
		p.Close()
		s.expect(fabric.EventDisconnected)
	}
}

// TestChecksumsAsked: the end that connects asks for checksums as its option says. Without the
// option it asks only between hosts.
func TestChecksumsAsked(t *testing.T) {
	on, off := true, false
	for _, option := range []*bool{nil, &on, &off} {
		d := openDevice(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: option}, nil).(*Device)
		p := loopback(t)
		assert.Equal(t, d.wantsCRC(p), option == &on)
	}
	d := openDevice(t, fabric.Options{RNRRetry: 7, Retry: 7, Checksums: &off}, nil).(*Device)
	assert.Assert(t, !d.wantsCRC(apart{}), "between hosts")
	for _, c := range []struct {
		local, remote string
		want          bool
	}{
		{"127.0.0.1", "127.0.0.1", false}, {"127.0.0.1", "127.0.0.2", false}, {"::1", "::1", false},
		{"192.0.2.1", "192.0.2.1", false}, {"192.0.2.1", "192.0.2.2", true}, {"2001:db8::1", "2001:db8::2", true},
		{"2001:db8::1", "2001:db8::1", false},
	} {
		assert.Equal(t, between(netip.MustParseAddr(c.local), netip.MustParseAddr(c.remote)), c.want, "%v", c)
	}
}

// apart is a stream between two hosts.
type apart struct{ stream }

func (apart) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }
func (apart) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 2} }

// loopback returns a TCP connection on the loopback interface.
func loopback(t *testing.T) *net.TCPConn {
	t.Helper()
	l := serve(t)
	c, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	assert.NilError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
