package rdmanet

import (
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"
)

// TestTarget: the address that is dialed for the address that Dial was given. "" is the device's
// own address. An address of another host is dialed as it is.
func TestTarget(t *testing.T) {
	for _, c := range []struct{ device, to, want string }{
		{"mem0", "192.0.2.1", "192.0.2.1"}, {"mem0", "127.0.0.1", ""}, {"mem0", "0.0.0.0", ""},
		{"mlx5_0", "192.0.2.1", "192.0.2.1"}, {"mlx5_0", "2001:db8::1", "2001:db8::1"}, {"mlx5_0", "127.0.0.1", ""},
		{"mlx5_0", "::1", ""}, {"mlx5_0", "0.0.0.0", ""},
		{"tcp", "192.0.2.1", "192.0.2.1"}, {"tcp", "127.0.0.2", "127.0.0.2"}, {"tcp", "0.0.0.0", "127.0.0.1"},
		{"tcp", "::", "::1"},
		{"tcp:192.0.2.7", "192.0.2.1", "192.0.2.1"}, {"tcp:192.0.2.7", "127.0.0.2", "127.0.0.2"},
		{"tcp:192.0.2.7", "0.0.0.0", ""},
	} {
		a := &adapter{key: adapterKey{name: c.device}} // its own address is the zero Addr
		want := netip.Addr{}
		if c.want != "" {
			want = netip.MustParseAddr(c.want)
		}
		assert.Equal(t, a.target(netip.MustParseAddr(c.to)), want, "%+v", c)
	}
}
