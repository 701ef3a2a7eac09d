package rdmanet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"gotest.tools/v3/assert"
)

// nameServer answers on one connection: each name has the IPv4 addresses.
func nameServer(c net.Conn, addrs ...[4]byte) {
	defer c.Close()
	for {
		size := make([]byte, 2)
		if _, err := io.ReadFull(c, size); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(query) != nil || len(m.Questions) != 1 {
			return
		}
		q := m.Questions[0]
		m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true},
			Questions: m.Questions}
		for _, a := range addrs {
			if q.Type == dnsmessage.TypeA {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 60}, Body: &dnsmessage.AResource{A: a},
				})
			}
		}
		answer, err := m.Pack()
		if err != nil {
			return
		}
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	}
}

// TestNameWithAddresses dials a name that has three addresses, of which the second is listened on.
// A trace gets the name once and each address that is tried, but no connection to the name server.
// If none can be reached the error is that of the first.
func TestNameWithAddresses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("127.0.0.1 is the only loopback address here")
	}
	const name = "peers.test."
	before := net.DefaultResolver
	defer func() { net.DefaultResolver = before }()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.ConnectStart != nil {
			trace.ConnectStart(network, "the name server") // as net.Dialer does
		}
		client, server := net.Pipe()
		go nameServer(server, [4]byte{127, 0, 0, 1}, [4]byte{127, 0, 0, 2}, [4]byte{127, 0, 0, 3})
		return client, nil
	}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: dial}
	if _, err := net.DefaultResolver.LookupHost(t.Context(), name); err != nil {
		t.Skipf("this host asks no name server: %v", err)
	}
	l, err := (&ListenConfig{Device: "tcp"}).Listen(t.Context(), Network, "127.0.0.2:0")
	assert.NilError(t, err)
	port := addrOf(l.Addr()).Port()
	var events []string
	hear := func(format string, args ...any) { events = append(events, fmt.Sprintf(format, args...)) }
	trace := &httptrace.ClientTrace{
		DNSStart: func(i httptrace.DNSStartInfo) { hear("look up %s", i.Host) },
		DNSDone:  func(i httptrace.DNSDoneInfo) { hear("%d addresses, %v", len(i.Addrs), i.Err) },
		ConnectStart: func(network, addr string) {
			hear("connect %s %s", network, strings.TrimSuffix(addr, fmt.Sprint(":", port)))
		},
		ConnectDone: func(_, _ string, err error) { hear("refused: %v", errors.Is(err, syscall.ECONNREFUSED)) },
	}
	ctx := httptrace.WithClientTrace(t.Context(), trace)
	d := Dialer{Device: "tcp"}
	c, err := d.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", name, port))
	assert.NilError(t, err)
	assert.Equal(t, c.RemoteAddr().String(), l.Addr().String())
	assert.DeepEqual(t, events, []string{
		"look up " + name, "3 addresses, <nil>", "connect tcp 127.0.0.1", "refused: true", "connect tcp 127.0.0.2",
		"refused: false",
	})
	assert.NilError(t, c.Close())
	assert.NilError(t, l.Close())

	events = nil
	_, err = d.DialContext(ctx, "tcp4", fmt.Sprintf("%s:%d", name, port))
	var op *net.OpError
	assert.Assert(t, errors.As(err, &op) && errors.Is(err, syscall.ECONNREFUSED), "%v", err)
	assert.Equal(t, op.Addr.String(), fmt.Sprint("127.0.0.1:", port))
	assert.Equal(t, op.Net, "tcp4")
	assert.Equal(t, len(events), 8, "%v", events)
	trace.DNSStart, trace.DNSDone, trace.ConnectStart, trace.ConnectDone = nil, nil, nil, nil
	_, err = d.DialContext(httptrace.WithClientTrace(t.Context(), trace), "tcp", fmt.Sprintf("%s:%d", name, port))
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.Equal(t, len(events), 8, "%v", events)
	_, err = d.DialContext(t.Context(), "tcp6", fmt.Sprintf("%s:%d", name, port))
	var none *net.DNSError
	assert.Assert(t, errors.As(err, &none) && none.IsNotFound, "%v", err)
}

// TestUnreachableAddress: an address that no device reaches does not end Dial. Dial tries the next
// address, and returns the error of that one.
func TestUnreachableAddress(t *testing.T) {
	nobody := netip.MustParseAddrPort("192.0.2.1:9") // no device of a test machine has a route to it
	if _, err := deviceTo("", nobody.Addr(), false); !errors.Is(err, ErrNoDevice) {
		t.Skipf("this host's RDMA device has a route there: %v", err)
	}
	l, err := Listen(Network, "127.0.0.1:0")
	assert.NilError(t, err)
	served := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), addrOf(l.Addr()).Port())
	var d Dialer
	cfg, device, err := d.config()
	assert.NilError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), hostilePatience)
	defer cancel()
	for _, addrs := range [][]netip.AddrPort{{nobody, served}, {nobody, nobody, served}, {served, nobody}} {
		c, err := d.dialEach(ctx, Network, cfg, device, addrs)
		assert.NilError(t, err)
		assert.Equal(t, addrOf(c.RemoteAddr()).Port(), served.Port())
		c.Close()
	}
	assert.NilError(t, l.Close())
	for _, addrs := range [][]netip.AddrPort{{nobody, served}, {served, nobody}} {
		_, err = d.dialEach(ctx, Network, cfg, device, addrs)
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		assert.Assert(t, !errors.Is(err, ErrNoDevice), "%v", err)
	}
	_, err = d.dialEach(ctx, Network, cfg, device, []netip.AddrPort{nobody, nobody})
	assert.ErrorIs(t, err, ErrNoDevice)
	assert.ErrorContains(t, err, `the device "tcp", named at both ends,`)
}

// TestDialPort0: nobody listens at port 0.
func TestDialPort0(t *testing.T) {
	for _, device := range []string{memDevice, tcpDevice} {
		_, err := (&Dialer{Device: device}).Dial(t.Context(), Network, "127.0.0.1:0")
		assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		assert.ErrorContains(t, err, "port 0")
	}
}
