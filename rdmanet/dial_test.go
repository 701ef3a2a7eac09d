package rdmanet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/tlstest"
	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// TestDialEndsAsItSucceeds ends the context of a Dial at the moment at which the Dial succeeds, by
// timeout and by cancel. Dial returns an error or a connection that works, and the process does not
// crash.
func TestDialEndsAsItSucceeds(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		go serveEcho(l)
		n := 6000
		if dev != "mem0" || testing.Short() {
			n = 1000
		}
		if raceEnabled || testing.Short() && softDevice(dev) {
			n /= 5
		}
		var typical time.Duration // the time of a Dial that succeeds
		for i := range n {
			ctx, cancel := context.WithCancel(context.Background())
			if typical > 0 {
				at := time.Duration(rand.Int64N(int64(2*typical) + 1))
				if i%2 == 0 {
					ctx, cancel = context.WithTimeout(context.Background(), at)
				} else {
					time.AfterFunc(at, cancel)
				}
			}
			began := time.Now()
			c, err := dialer(dev).Dial(ctx, "rdma", l.Addr().String())
			if err == nil {
				typical = (3*typical + time.Since(began)) / 4
				if i%50 == 0 {
					echo(t, c, "hello")
				}
				c.Close()
			} else if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) &&
				!errors.Is(err, syscall.ETIMEDOUT) {
				t.Fatal(err)
			}
			cancel()
		}
	})
}

// serveEcho accepts connections until the listener is closed, and echoes what comes.
func serveEcho(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			io.Copy(c, c)
			c.Close()
		}()
	}
}

// TestBurst dials 4,000 times at once: none is refused, as with TCP.
func TestBurst(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		n := 4000
		if testing.Short() || raceEnabled {
			n = 1100 // more than the 1024 that kernels queue
		}
		if testing.Short() && softDevice(dev) {
			n = 300 // in an emulated machine
		}
		l := listen(t, dev, rdmanet.ListenConfig{})
		go serveEcho(l)
		burst(t, dev, l, n)
	})
}

// burst dials n times at once, and expects each connection to echo.
func burst(t *testing.T, dev string, l *rdmanet.Listener, n int) {
	t.Helper()
	var all sync.WaitGroup
	var failed atomic.Int64
	var first atomic.Pointer[error]
	conns := make([]*rdmanet.Conn, n)
	for i := range conns {
		all.Go(func() {
			d := dialer(dev)
			d.Timeout = 2 * patience
			c, err := d.Dial(context.Background(), "rdma", l.Addr().String())
			if err == nil {
				conns[i] = c
				_, err = c.Write([]byte("hello"))
			}
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, 5))
			}
			if err != nil {
				failed.Add(1)
				first.CompareAndSwap(nil, &err)
			}
		})
	}
	all.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d dials failed, the first: %v", failed.Load(), n, *first.Load())
	}
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}

// TestBacklog has a listener that accepts nothing: requests beyond its backlog are tried again
// until Accept takes some, or until the time of Dial is over, and the error says why.
func TestBacklog(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{Backlog: 4})
		short := time.Second
		dial := func(timeout time.Duration) (*rdmanet.Conn, error) {
			d := dialer(dev)
			d.Timeout = timeout
			return d.Dial(context.Background(), "rdma", l.Addr().String())
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		var conns []*rdmanet.Conn
		var refused error
		for ; l.Stats().Refused == 0 && short < patience; short *= 2 { // a busy machine needs longer
			for range 30 {
				all.Go(func() {
					c, err := dial(short)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						refused = err
					} else {
						conns = append(conns, c)
					}
				})
			}
			all.Wait()
		}
		assert.Assert(t, len(conns) < 30 && refused != nil, "%d of 30", len(conns))
		var timeout net.Error
		assert.Assert(t, errors.As(refused, &timeout) && timeout.Timeout(), "%v", refused)
		assert.Assert(t, l.Stats().Refused > 0)
		late := make(chan error, 1)
		go func() {
			c, err := dial(patience)
			if err == nil {
				c.Close()
			}
			late <- err
		}()
		go serveEcho(l)
		assert.NilError(t, <-late)
		for _, c := range conns {
			c.Close()
		}
		_, err := (&rdmanet.ListenConfig{Device: dev, Backlog: -1}).Listen(t.Context(), "rdma", ":0")
		assert.ErrorContains(t, err, "Backlog is -1, must be from 0 to 65536")
	})
}

// TestDialTimeIsOver dials a peer that does not answer: the error is that of a deadline, whether of
// the context or of the Dialer, as over TCP.
func TestDialTimeIsOver(t *testing.T) {
	for _, dev := range []string{"mem0", "tcp:127.0.0.1"} {
		ia, err := udat.Open(dev)
		assert.NilError(t, err)
		defer ia.Close(udat.CloseAbrupt)
		requests, err := ia.CreateEVD(8, udat.EVDCR, nil)
		assert.NilError(t, err)
		qual, _, err := ia.CreatePSPAny(requests, udat.PSPConsumer)
		assert.NilError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		silent := fmt.Sprint("127.0.0.1:", qual)
		_, ofContext := (&rdmanet.Dialer{Device: dev}).Dial(ctx, "rdma", silent)
		_, ofDialer := (&rdmanet.Dialer{Device: dev, Timeout: 100 * time.Millisecond}).Dial(t.Context(), "rdma", silent)
		for _, err := range []error{ofContext, ofDialer} {
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			var timeout net.Error
			assert.Assert(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
		}
	}
}

// TestDialContextOfTransport uses DialContext as http.Transport does: it names networks of TCP. It
// calls the hooks of httptrace.
func TestDialContextOfTransport(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		yes := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "yes") }
		s := &http.Server{Handler: http.HandlerFunc(yes)}
		go s.Serve(l)
		defer s.Close()
		d := dialer(dev)
		transport := &http.Transport{DialContext: d.DialContext}
		defer transport.CloseIdleConnections()
		var began, ended atomic.Int64
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			ConnectStart: func(string, string) { began.Add(1) },
			ConnectDone: func(_, addr string, err error) {
				if err == nil && addr == l.Addr().String() {
					ended.Add(1)
				}
			},
		})
		r, err := http.NewRequestWithContext(ctx, "GET", "http://"+l.Addr().String()+"/", nil)
		assert.NilError(t, err)
		answer, err := (&http.Client{Transport: transport}).Do(r)
		assert.NilError(t, err)
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		assert.NilError(t, err)
		assert.Equal(t, string(body), "yes")
		assert.Equal(t, began.Load(), int64(1))
		assert.Equal(t, ended.Load(), int64(1))
		for _, network := range []string{"tcp", "tcp4"} {
			c, err := d.DialContext(t.Context(), network, l.Addr().String())
			assert.NilError(t, err)
			c.Close()
		}
		_, err = d.DialContext(t.Context(), "udp", l.Addr().String())
		assert.ErrorContains(t, err, "unknown network udp")
	})
}

// TestAddresses: a program may ask for addresses of TCP's type, and for the local address.
func TestAddresses(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{TCPAddrs: true})
		a, ok := l.Addr().(*net.TCPAddr)
		assert.Assert(t, ok && a.Port > 0, "%v", l.Addr())
		client, server := join(t, dev, l, rdmanet.Dialer{TCPAddrs: true})
		defer client.Close()
		defer server.Close()
		for _, x := range []net.Addr{client.LocalAddr(), client.RemoteAddr(), server.LocalAddr(), server.RemoteAddr()} {
			_, ok := x.(*net.TCPAddr)
			assert.Assert(t, ok, "%T", x)
		}
		assert.Equal(t, client.RemoteAddr().String(), a.String())
		assert.Equal(t, client.LocalAddr().String(), server.RemoteAddr().String())
		unnamed, other := join(t, dev, l, rdmanet.Dialer{}) // listen's address names no host
		_, ok = unnamed.LocalAddr().(*net.TCPAddr)
		assert.Equal(t, ok, strings.HasPrefix(dev, "tcp"), "%T", unnamed.LocalAddr())
		assert.Equal(t, addrOf(unnamed.RemoteAddr()), a.AddrPort())
		unnamed.Close()
		other.Close()
		own := rdmanet.Addr{AddrPort: a.AddrPort()}
		if strings.HasPrefix(dev, "tcp") {
			return // an address never means the host's TCP
		}
		for _, local := range []net.Addr{&net.TCPAddr{IP: a.IP}, &net.IPAddr{IP: a.IP}, own} {
			c, err := (&rdmanet.Dialer{LocalAddr: local}).Dial(t.Context(), "rdma", a.String())
			assert.NilError(t, err)
			assert.Equal(t, addrOf(c.LocalAddr()).Addr().String(), a.IP.String())
			c.Close()
		}
		_, err := (&rdmanet.Dialer{LocalAddr: &net.UnixAddr{}}).Dial(t.Context(), "rdma", a.String())
		assert.ErrorContains(t, err, "LocalAddr is")
		_, err = (&rdmanet.Dialer{LocalAddr: a, Device: dev}).Dial(t.Context(), "rdma", a.String())
		assert.ErrorContains(t, err, "only one may be set")
	})
}

// TestEmptySettings: a setting that is not nil but empty is an error that names the setting.
func TestEmptySettings(t *testing.T) {
	for text, d := range map[string]rdmanet.Dialer{
		"LocalAddr is <nil> (*net.IPAddr)":   {LocalAddr: (*net.IPAddr)(nil)},
		"LocalAddr is <nil> (*net.TCPAddr)":  {LocalAddr: (*net.TCPAddr)(nil)},
		"LocalAddr is <nil> (*net.UnixAddr)": {LocalAddr: (*net.UnixAddr)(nil)},
		"LocalAddr is <nil> (*rdmanet.Addr)": {LocalAddr: (*rdmanet.Addr)(nil)},
		"LocalAddr is invalid AddrPort":      {LocalAddr: rdmanet.Addr{}},
		"LocalAddr is ?0102%zone":            {LocalAddr: &net.IPAddr{IP: net.IP{1, 2}, Zone: "zone"}},
		"LocalAddr is :7":                    {LocalAddr: &net.TCPAddr{Port: 7}},
		"Logger has no handler":              {Device: "mem0", Logger: &slog.Logger{}},
		"Zone is not of NewZone":             {Zone: &rdmanet.Zone{}},
	} {
		t.Run(text, func(t *testing.T) {
			_, err := d.Dial(t.Context(), "rdma", "127.0.0.1:1")
			assert.ErrorContains(t, err, text)
			if d.LocalAddr == nil {
				lc := rdmanet.ListenConfig{Device: d.Device, Logger: d.Logger, Zone: d.Zone}
				_, err = lc.Listen(t.Context(), "rdma", ":0")
				assert.ErrorContains(t, err, text)
			}
		})
	}
	_, err := (&rdmanet.Dialer{Device: "mem0", LocalAddr: (*net.IPAddr)(nil)}).Dial(t.Context(), "rdma", "127.0.0.1:1")
	assert.ErrorContains(t, err, "only one may be set")
}

// TestLoopback: on tcp a loopback address means itself. A listener on this address, or on all
// addresses, is reached. A listener on another address is not.
func TestLoopback(t *testing.T) {
	dialer := rdmanet.Dialer{Device: "tcp", Timeout: patience}
	for device, served := range map[string]string{"tcp:127.0.0.1": "127.0.0.1", "tcp": "127.0.0.1",
		"tcp:127.0.0.2": "127.0.0.2"} {
		l, err := (&rdmanet.ListenConfig{Device: device}).Listen(t.Context(), "rdma", ":0")
		assert.NilError(t, err, device)
		port := strconv.Itoa(int(addrOf(l.Addr()).Port()))
		c, err := dialer.Dial(t.Context(), "rdma", net.JoinHostPort(served, port))
		assert.NilError(t, err, device)
		assert.Equal(t, c.RemoteAddr().String(), net.JoinHostPort(served, port))
		c.Close()
		if device == "tcp:127.0.0.2" {
			_, err = dialer.Dial(t.Context(), "rdma", net.JoinHostPort("127.0.0.1", port))
			assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		}
		assert.NilError(t, l.Close())
	}
}

// TestPortTaken: Listen on a port that is in use fails with EADDRINUSE.
func TestPortTaken(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		lc := rdmanet.ListenConfig{Device: dev}
		_, err := lc.Listen(t.Context(), "rdma", l.Addr().String())
		assert.ErrorIs(t, err, syscall.EADDRINUSE)
	})
}

// TestManyConnections has 2,000 connections with buffers of the default size, each of which has
// echoed: they take at most 60 KiB of memory each, both ends together, and give all of it back.
func TestManyConnections(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector has memory of its own")
	}
	onEach(t, func(t *testing.T, dev string) {
		n := 2000
		if testing.Short() {
			n = 300
		}
		l := listen(t, dev, rdmanet.ListenConfig{})
		first, firstPeer := join(t, dev, l, rdmanet.Dialer{}) // with the memory that all connections share
		defer firstPeer.Close()
		defer first.Close()
		heap := inUse()
		conns := make([]*rdmanet.Conn, 0, 2*n)
		for range n {
			a, b := join(t, dev, l, rdmanet.Dialer{})
			conns = append(conns, a, b)
			_, err := a.Write([]byte("hello"))
			assert.NilError(t, err)
			_, err = io.ReadFull(b, make([]byte, 5))
			assert.NilError(t, err)
		}
		registered := 0
		for _, c := range conns {
			if strings.HasPrefix(dev, "tcp") {
				break // short rings are of Go's heap there, which has been counted
			}
			s := c.Stats()
			registered += s.ReadBuffer + 4<<10 // the first WriteBuffer shares a page with the messages
		}
		each := (int(inUse()-heap) + registered) / n
		t.Logf("%d bytes for each connection, of them %d registered", each, registered/n)
		limit := 60 << 10
		if strings.HasPrefix(dev, "tcp") { // the sockets of both ends are in this process
			limit += 12 << 10
		}
		if tlstest.Suite(dev) != nil {
			limit += 28 << 10 // the state of package tls, and where the goroutines wait for data
		}
		if testing.Short() {
			limit += 4 << 20 / n // a part of the shared memory, which is large for so few connections
		}
		assert.Assert(t, each <= limit, "%d bytes for each connection", each)
		var all sync.WaitGroup
		for _, c := range conns {
			all.Go(func() { c.Close() })
		}
		all.Wait()
		conns = nil
		most := n*8<<10 + 1<<20 // a part of the shared memory
		left := int(inUse() - heap)
		for end := time.Now().Add(patience); left > most && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
			left = int(inUse() - heap)
		}
		assert.Assert(t, left <= most, "%d bytes stay", left)
		runtime.KeepAlive(conns)
	})
}

// inUse returns the size of the heap in use.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// softDevice reports whether the device is software of the kernel.
func softDevice(dev string) bool {
	return strings.HasPrefix(dev, "rxe") || strings.HasPrefix(dev, "siw")
}

// rounds returns n, or less in a short run in the emulated machine.
func rounds(dev string, n int) int {
	if testing.Short() && softDevice(dev) {
		return max(1, n/10)
	}
	return n
}

// TestListenOnOneAddress: a listener on the device tcp listens on the address that it is given, and
// not on the host's other addresses.
func TestListenOnOneAddress(t *testing.T) {
	config := rdmanet.ListenConfig{Device: "tcp"}
	l, err := config.Listen(t.Context(), "rdma", "127.0.0.1:0")
	assert.NilError(t, err)
	defer l.Close()
	at := netip.MustParseAddrPort(l.Addr().String())
	assert.Equal(t, at.Addr().String(), "127.0.0.1")
	other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", at.Port()))
	if runtime.GOOS != "linux" && errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Skip("127.0.0.1 is the only loopback address here")
	}
	assert.NilError(t, err, "the listener is on all addresses")
	other.Close()

	zone, err := rdmanet.NewZone("tcp", rdmanet.Path{})
	assert.NilError(t, err)
	defer zone.Close()
	config = rdmanet.ListenConfig{Zone: zone}
	_, err = config.Listen(t.Context(), "rdma", "127.0.0.1:0")
	assert.ErrorIs(t, err, syscall.EINVAL)
	assert.ErrorContains(t, err, "tcp:127.0.0.1")
	all, err := config.Listen(t.Context(), "rdma", ":0")
	assert.NilError(t, err)
	all.Close()
}
