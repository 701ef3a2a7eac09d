package rdmanet

import (
	"log/slog"
	"net"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestPathKeys: Paths that differ need adapters of their own, even if a setting is zero in one and
// unset in the other.
func TestPathKeys(t *testing.T) {
	n, m, spin, none := 0, 1, time.Second, time.Duration(0)
	keys := map[adapterKey]int{}
	for i, p := range []Path{
		{}, {TOS: &n}, {TOS: &m}, {ServiceLevel: &n}, {ServiceLevel: &m}, {GIDIndex: &n}, {GIDIndex: &m}, {AckTimeout: &n},
		{AckTimeout: &m}, {MTU: &n}, {MTU: &m}, {Spin: &none}, {Spin: &spin}, {TOS: &n, MTU: &n},
	} {
		other, known := keys[p.key(memDevice)]
		assert.Assert(t, !known, "%d is as %d", i, other)
		keys[p.key(memDevice)] = i
		again := p
		assert.Equal(t, again.key(memDevice), p.key(memDevice))
		assert.Assert(t, p.key("other") != p.key(memDevice))
	}
}

// TestPathReachesTheDevice: each setting reaches the device, from a Dialer, a ListenConfig and a
// Zone. A value out of range makes them fail with an error that names the setting.
func TestPathReachesTheDevice(t *testing.T) {
	big, odd, never := 300, 1000, -time.Second
	for text, path := range map[string]Path{
		"type of service is 300":         {TOS: &big},
		"service level is 300":           {ServiceLevel: &big},
		"GID index is 300":               {GIDIndex: &big},
		"acknowledgement timeout is 300": {AckTimeout: &big},
		"path MTU is 1000":               {MTU: &odd},
		"spin time is -1s":               {Spin: &never},
	} {
		_, err := (&Dialer{Device: memDevice, Path: path}).Dial(t.Context(), Network, "127.0.0.1:1")
		assert.ErrorContains(t, err, text)
		_, err = (&ListenConfig{Device: memDevice, Path: path}).Listen(t.Context(), Network, ":0")
		assert.ErrorContains(t, err, text)
		_, err = NewZone(memDevice, path)
		assert.ErrorContains(t, err, text)
	}
}

// TestDefaults: settings that a program leaves out have the values that the documentation states.
func TestDefaults(t *testing.T) {
	cfg, err := newConfig(0, 0, 0, false, nil)
	assert.NilError(t, err)
	c, _ := ends(t)
	assert.Equal(t, c.cfg.readBuffer, 128<<10)
	assert.Equal(t, c.cfg.writeBuffer, 128<<10)
	a, err := openAdapter("tcp:127.0.0.1", Path{}, 0)
	assert.NilError(t, err)
	defer a.close()
	assert.Equal(t, a.buffer, 512<<10)
	assert.Equal(t, cfg.keepAlive, 10*time.Second)
	assert.Equal(t, cfg.log, slog.Default())
	assert.Equal(t, dialTime, 30*time.Second)
	l, err := (&ListenConfig{Device: memDevice}).Listen(t.Context(), Network, ":0")
	assert.NilError(t, err)
	defer l.Close()
	assert.Equal(t, l.backlog, 4096)
	c, err = (&Dialer{Device: memDevice}).Dial(t.Context(), Network, l.Addr().String())
	assert.NilError(t, err)
	defer c.Close()
	assert.Equal(t, c.linger.limit, 5*time.Minute)
	assert.NilError(t, c.SetLinger(7))
	assert.Equal(t, c.linger.limit, 7*time.Second)
	assert.NilError(t, c.SetLinger(-1))
	assert.Equal(t, c.linger.limit, 5*time.Minute)
}

// TestKeepAliveLimits: intervals beyond the limits of udat.WithKeepAlive become these limits.
func TestKeepAliveLimits(t *testing.T) {
	for _, c := range []struct{ given, want time.Duration }{
		{1, leastKeepAlive}, {leastKeepAlive, leastKeepAlive}, {time.Minute, time.Minute}, {0, defaultKeepAlive}, {-1, 0},
		{1 << 62, mostKeepAlive},
	} {
		cfg, err := newConfig(0, 0, c.given, false, nil)
		assert.NilError(t, err)
		assert.Equal(t, cfg.keepAlive, c.want)
	}
}

// TestAddressesBeforeConnected: a connection has addresses before it is connected, for its errors.
func TestAddressesBeforeConnected(t *testing.T) {
	a, err := openAdapter(memDevice, Path{}, 0)
	assert.NilError(t, err)
	defer a.close()
	for _, tcp := range []bool{false, true} {
		cfg, err := newConfig(0, 0, 0, tcp, nil)
		assert.NilError(t, err)
		c, err := newConn(a.dials, cfg, asHandler)
		assert.NilError(t, err)
		for _, addr := range []net.Addr{c.LocalAddr(), c.RemoteAddr()} {
			assert.Assert(t, addr != nil && addr.String() == cfg.addr(Addr{}).String())
		}
		c.abort(net.ErrClosed)
	}
}
