package rdmanet_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/nettest"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/rdmanet"
)

// deviceEnv names the device on which the tests run in addition to mem0.
const deviceEnv = "GODAT_TEST_DEVICE"

const patience = 60 * time.Second

// onEach runs a test on mem0 and on the device of the environment. A short run on a device leaves
// mem0 out.
func onEach(t *testing.T, test func(t *testing.T, dev string)) {
	var devices []string
	env := os.Getenv(deviceEnv)
	if env == "" || !testing.Short() {
		devices = append(devices, "mem0")
	}
	if env != "" {
		devices = append(devices, strings.Split(env, ",")...)
	}
	for _, dev := range devices {
		t.Run(dev, func(t *testing.T) { test(t, dev) })
	}
}

// addrOf returns an address whose type depends on the device.
func addrOf(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }

// listen listens on a device until the test ends.
func listen(t testing.TB, dev string, lc rdmanet.ListenConfig) *rdmanet.Listener {
	t.Helper()
	lc.Device = dev
	if lc.TLS == nil && lc.Zone == nil {
		lc.TLS = tlstest.Suite(dev)
	}
	l, err := lc.Listen(context.Background(), "rdma", ":0")
	assert.NilError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// dialer returns a Dialer that reaches the listeners of [listen] on a device, with TLS if the suite
// runs over TLS.
func dialer(dev string) *rdmanet.Dialer {
	return &rdmanet.Dialer{Device: dev, TLS: tlstest.Suite(dev)}
}

// dial dials a listener of [listen].
func dial(t testing.TB, dev string, l *rdmanet.Listener) (*rdmanet.Conn, error) {
	return dialer(dev).Dial(t.Context(), "rdma", l.Addr().String())
}

// hasGoroutines reports whether each connection of a device has two goroutines.
func hasGoroutines(dev string) bool {
	return strings.HasPrefix(dev, "tcp") && portable || tlstest.Suite(dev) != nil
}

// Settings of connections with buffers of 128 KiB on each device.
var (
	shortDialer = rdmanet.Dialer{ReadBuffer: 128 << 10, WriteBuffer: 128 << 10}
	shortListen = rdmanet.ListenConfig{ReadBuffer: 128 << 10, WriteBuffer: 128 << 10}
)

// pair connects two ends on a device; both are closed when the test ends.
func pair(t testing.TB, dev string, d rdmanet.Dialer, lc rdmanet.ListenConfig) (client, server *rdmanet.Conn) {
	t.Helper()
	l := listen(t, dev, lc)
	client, server = join(t, dev, l, d)
	t.Cleanup(func() {
		client.Close()
		server.Close()
	})
	return client, server
}

// join connects to a listener.
func join(t testing.TB, dev string, l *rdmanet.Listener, d rdmanet.Dialer) (client, server *rdmanet.Conn) {
	t.Helper()
	d.Device = dev
	if d.TLS == nil && d.Zone == nil {
		d.TLS = tlstest.Suite(dev)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := d.Dial(ctx, "rdma", l.Addr().String())
	assert.NilError(t, err)
	server, err = l.AcceptConn()
	assert.NilError(t, err)
	return client, server
}

// TestNettest runs the suite of golang.org/x/net for net.Conn.
func TestNettest(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			a, b := join(t, dev, l, rdmanet.Dialer{})
			return a, b, func() { a.Close(); b.Close() }, nil
		})
	})
}
