package udat_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// TestStreamFaults breaks the devices of a stream of package rdmanet during its writes: every call
// of both ends returns an error within a time limit, and the data that each end has read is a
// prefix of the data that the other end has written. The test is here because only the tests of
// this package decorate devices.
func TestStreamFaults(t *testing.T) {
	broken := errors.New("the device is broken")
	faults := map[string]func(client, server *faultfabric.Script){
		"posts refused":     func(c, _ *faultfabric.Script) { c.On(faultfabric.PostSend).Skip(20).Fail(broken) },
		"one post refused":  func(c, _ *faultfabric.Script) { c.On(faultfabric.PostSend).Skip(20).Times(1).Fail(broken) },
		"receives refused":  func(_, s *faultfabric.Script) { s.On(faultfabric.PostRecv).Skip(3).Fail(broken) },
		"no completions":    func(c, _ *faultfabric.Script) { c.On(faultfabric.Poll).Skip(50).Drop() },
		"none at the peer":  func(_, s *faultfabric.Script) { s.On(faultfabric.Poll).Skip(50).Drop() },
		"arming is refused": func(c, _ *faultfabric.Script) { c.On(faultfabric.Arm).Fail(broken) },
		"the end is not reported": func(c, s *faultfabric.Script) {
			c.On(faultfabric.ConnEvent).Drop()
			s.On(faultfabric.PostSend).Skip(20).Fail(broken)
		},
	}
	// The other end sees a program that is stopped, which keeps its connection: Close ends the calls.
	silent := map[string]bool{"no completions": true, "none at the peer": true}
	onEachOutside(t, func(t *testing.T, dev string) {
		for name, fault := range faults {
			t.Run(name, func(t *testing.T) {
				var scripts [2]faultfabric.Script
				var providers [2]string
				for i := range scripts {
					// A device that loses what it should report does not watch its peers: udat does.
					scripts[i].Attr = func(a *fabric.Attr) { a.WatchesPeers = false }
					providers[i] = fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), i)
					assert.NilError(t, udat.RegisterProvider(providers[i], dev, udat.Through(scripts[i].Wrap)))
					defer removeWhenClosed(t, providers[i])
				}
				const often = 200 * time.Millisecond
				lc := rdmanet.ListenConfig{Device: providers[1], KeepAlive: often}
				l, err := lc.Listen(t.Context(), "rdma", ":0")
				assert.NilError(t, err)
				defer l.Close()
				d := rdmanet.Dialer{Device: providers[0], KeepAlive: often, Timeout: patience}
				client, err := d.Dial(t.Context(), "rdma", l.Addr().String())
				assert.NilError(t, err)
				server, err := l.AcceptConn()
				assert.NilError(t, err)
				breakStream(t, client, server, func() {
					fault(&scripts[0], &scripts[1])
					if silent[name] {
						for _, c := range []*rdmanet.Conn{client, server} {
							c.SetLinger(0) // fails if the other end's Close has come
							c.Close()
						}
					}
				})
			})
		}
	})
}

// streams connects two streams over dev. Their adapters are opened with the options, and closed
// when the test ends.
func streams(t *testing.T, dev string, keepAlive time.Duration, opts ...udat.Option) (client, server *rdmanet.Conn) {
	t.Helper()
	provider := strings.ReplaceAll(t.Name(), "/", "-")
	assert.NilError(t, udat.RegisterProvider(provider, dev, opts...))
	t.Cleanup(func() { removeWhenClosed(t, provider) })
	lc := rdmanet.ListenConfig{Device: provider, KeepAlive: keepAlive}
	l, err := lc.Listen(t.Context(), "rdma", ":0")
	assert.NilError(t, err)
	defer l.Close()
	d := rdmanet.Dialer{Device: provider, KeepAlive: keepAlive, Timeout: patience}
	client, err = d.Dial(t.Context(), "rdma", l.Addr().String())
	assert.NilError(t, err)
	t.Cleanup(func() { client.Close() })
	server, err = l.AcceptConn()
	assert.NilError(t, err)
	t.Cleanup(func() { server.Close() })
	return client, server
}

// TestStreamKeepAlive: an idle stream makes no requests but its own probes.
func TestStreamKeepAlive(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		var script faultfabric.Script
		quick := udat.WithQuickKeepAlive(20 * time.Millisecond)
		streams(t, dev, -1, quick, udat.Through(script.Wrap))
		time.Sleep(time.Second)
		posts := script.On(faultfabric.PostSend).Count()
		time.Sleep(time.Second)
		assert.Equal(t, posts.Calls(), 0)
	})
}

// TestStreamPeerVanishes: the calls of a stream whose peer has vanished time out once the device
// has given up.
func TestStreamPeerVanishes(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		var host *memfabric.Fabric
		client, _ := streams(t, dev, 300*time.Millisecond, udat.Through(func(f fabric.Fabric) fabric.Fabric {
			if m, ok := f.(*memfabric.Fabric); ok {
				host = m
			}
			return f
		}))
		opened := host.Openings()
		nicfault.Of(opened[len(opened)-1]).Kill()
		_, err := client.Read(make([]byte, 1))
		assert.ErrorIs(t, err, syscall.ETIMEDOUT)
		var timeout net.Error
		assert.Assert(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
	})
}

// TestStreamDeviceRemoved: when the device is removed, blocked reads, blocked writes and a blocked
// Accept end.
func TestStreamDeviceRemoved(t *testing.T) {
	onMemOutside(t, func(t *testing.T, dev string) {
		var host *memfabric.Fabric
		provider := strings.ReplaceAll(t.Name(), "/", "-")
		assert.NilError(t, udat.RegisterProvider(provider, dev, udat.Through(func(f fabric.Fabric) fabric.Fabric {
			if m, ok := f.(*memfabric.Fabric); ok {
				host = m
			}
			return f
		})))
		t.Cleanup(func() { removeWhenClosed(t, provider) })
		l, err := (&rdmanet.ListenConfig{Device: provider}).Listen(t.Context(), "rdma", ":0")
		assert.NilError(t, err)
		defer l.Close()
		opened := host.Openings()
		var calls []func() error
		for i := range 4 {
			c, err := (&rdmanet.Dialer{Device: dev, Timeout: patience}).Dial(t.Context(), "rdma", l.Addr().String())
			assert.NilError(t, err)
			defer c.Close()
			server, err := l.AcceptConn()
			assert.NilError(t, err)
			defer server.Close()
			calls = append(calls, func() (err error) {
				for err == nil {
					if i%2 == 0 {
						_, err = server.Read(make([]byte, 1))
					} else {
						_, err = server.Write(make([]byte, 100_000)) // nobody reads
					}
				}
				return err
			})
		}
		calls = append(calls, func() error { _, err := l.AcceptConn(); return err })
		ends := make(chan error, len(calls))
		for _, call := range calls {
			go func() { ends <- call() }()
		}
		leaktest.Blocked(t, 2, "rdmanet.(*Conn).Read")
		leaktest.Blocked(t, 2, "rdmanet.(*Conn).Write")
		leaktest.Blocked(t, 1, "rdmanet.(*Listener).AcceptConn")
		nicfault.Of(opened[len(opened)-1]).Remove()
		for range calls {
			select {
			case err := <-ends:
				assert.Assert(t, err != nil)
			case <-time.After(patience):
				t.Fatal("a call does not end when the device is removed")
			}
		}
	})
}

// removeWhenClosed removes a registered name once rdmanet has closed the adapter, which it does in
// the background.
func removeWhenClosed(t *testing.T, name string) {
	var err error
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if err = udat.RemoveProvider(name); err == nil {
			return
		}
	}
	t.Errorf("%s: %v", name, err)
}

// breakStream streams in both directions, calls happen, which causes the fault, and expects all
// calls to end.
func breakStream(t *testing.T, client, server *rdmanet.Conn, happen func()) {
	data := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	ended := make(chan error, 4)
	for _, c := range []*rdmanet.Conn{client, server} {
		go func() {
			p := make([]byte, 10000)
			for at := 0; ; {
				n, err := c.Read(p)
				for got := p[:n]; len(got) > 0; {
					k := min(len(got), len(data)-at)
					if !bytes.Equal(got[:k], data[at:at+k]) {
						t.Errorf("the bytes from %d on have changed", at)
					}
					got, at = got[k:], (at+k)%len(data)
				}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
		go func() {
			for at := 0; ; {
				n, err := c.Write(data[at:min(at+3000, len(data))])
				if err != nil {
					ended <- err
					return
				}
				at = (at + n) % len(data)
			}
		}()
	}
	time.Sleep(20 * time.Millisecond)
	happen()
	limit := time.After(patience)
	for i := range cap(ended) {
		select {
		case <-ended:
		case <-limit:
			t.Fatalf("%d of %d calls are still blocked", cap(ended)-i, cap(ended))
		}
	}
	closed := make(chan bool)
	go func() {
		client.Close()
		server.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-limit:
		t.Fatal("Close is still blocked")
	}
}

// scripted registers a name for dev whose devices the script decorates, until the test ends.
func scripted(t *testing.T, dev string, script *faultfabric.Script) (provider string) {
	t.Helper()
	provider = strings.ReplaceAll(t.Name(), "/", "-")
	assert.NilError(t, udat.RegisterProvider(provider, dev, udat.Through(script.Wrap)))
	t.Cleanup(func() { removeWhenClosed(t, provider) })
	return provider
}

// TestStreamLimits: rdmanet keeps to the limits of a device that are smaller than its constants.
// Larger reads and writes of remote memory are split.
func TestStreamLimits(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		const most = 1 << 16
		const n = 5*most - 1
		script := faultfabric.Script{Attr: func(a *fabric.Attr) {
			a.MaxMessage, a.MaxReadIn, a.MaxReadOut, a.MaxCQE = most, min(a.MaxReadIn, 1), min(a.MaxReadOut, 1), 250
		}}
		provider := scripted(t, dev, &script)
		l, err := (&rdmanet.ListenConfig{Device: provider}).Listen(t.Context(), "rdma", ":0")
		assert.NilError(t, err)
		defer l.Close()
		client, err := (&rdmanet.Dialer{Device: provider, Timeout: patience}).Dial(t.Context(), "rdma", l.Addr().String())
		assert.NilError(t, err)
		defer client.Close()
		server, err := l.AcceptConn()
		assert.NilError(t, err)
		defer server.Close()
		far, err := server.NewRegion(make([]byte, n), rdmanet.PeerReads|rdmanet.PeerWrites)
		assert.NilError(t, err)
		near, err := client.NewRegion(make([]byte, n), 0)
		assert.NilError(t, err)
		rand.NewChaCha8([32]byte{2}).Read(near.Bytes())
		want := bytes.Clone(near.Bytes())
		b := client.NewBatch()
		b.Write(far.Remote(), near, 0)
		assert.Equal(t, b.Len(), 5)
		assert.NilError(t, b.Do(t.Context()))
		assert.Assert(t, bytes.Equal(far.Bytes(), want))
		clear(near.Bytes())
		b.Read(near, 0, far.Remote())
		assert.NilError(t, b.Do(t.Context()))
		assert.Assert(t, bytes.Equal(near.Bytes(), want))
		go server.Write(want)
		assert.NilError(t, client.SetReadDeadline(time.Now().Add(patience)))
		got := make([]byte, n)
		_, err = io.ReadFull(client, got)
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(got, want))
	})
}

// TestSlowDeregistration: while a device takes long to end a registration of one connection, the
// other connections of the dispatcher go on.
func TestSlowDeregistration(t *testing.T) {
	const size = 12345 // of the registration that does not end
	onEachOutside(t, func(t *testing.T, dev string) {
		for name, try := range map[string]struct {
			size int
			zone bool
			end  func(t *testing.T, script *faultfabric.Script, z *rdmanet.Zone, client, server *rdmanet.Conn) (then func())
		}{
			"region": {size: size, end: func(t *testing.T, _ *faultfabric.Script, _ *rdmanet.Zone, c, _ *rdmanet.Conn) func() {
				r, err := c.NewRegion(make([]byte, size), 0)
				assert.NilError(t, err)
				go r.Close()
				return func() {}
			}},
			"region of a batch": {size: size, end: func(t *testing.T, script *faultfabric.Script, _ *rdmanet.Zone,
				c, server *rdmanet.Conn) func() {
				far, err := server.NewRegion(make([]byte, size), rdmanet.PeerReads)
				assert.NilError(t, err)
				near, err := c.NewRegion(make([]byte, size), 0)
				assert.NilError(t, err)
				hidden := script.On(faultfabric.Poll).Drop()
				b := c.NewBatch()
				b.Read(near, 0, far.Remote())
				_, err = b.Start(t.Context())
				assert.NilError(t, err)
				assert.NilError(t, near.Close()) // at once: the batch uses it
				return hidden.Stop
			}},
			"first ring": {size: 4096, end: func(t *testing.T, _ *faultfabric.Script, _ *rdmanet.Zone,
				c, server *rdmanet.Conn) func() {
				go server.Write(make([]byte, 1<<20))
				_, err := io.ReadFull(c, make([]byte, 1<<20))
				assert.NilError(t, err)
				return func() {}
			}},
			"grant": {size: size, zone: true, end: func(t *testing.T, _ *faultfabric.Script, z *rdmanet.Zone,
				c, _ *rdmanet.Conn) func() {
				m, err := z.Register(make([]byte, size))
				assert.NilError(t, err)
				g, err := c.Grant(t.Context(), m, 0, size, rdmanet.PeerReads)
				assert.NilError(t, err)
				assert.NilError(t, m.Close())
				go g.Revoke()
				return func() {}
			}},
		} {
			t.Run(name, func(t *testing.T) {
				var script faultfabric.Script
				d := rdmanet.Dialer{Device: scripted(t, dev, &script), Timeout: patience}
				if try.zone {
					z, err := rdmanet.NewZone(d.Device, rdmanet.Path{})
					if errors.Is(err, errors.ErrUnsupported) {
						t.Skip(err)
					}
					assert.NilError(t, err)
					defer z.Close()
					d.Zone = z
				}
				l, err := (&rdmanet.ListenConfig{Device: dev}).Listen(t.Context(), "rdma", ":0")
				assert.NilError(t, err)
				defer l.Close()
				var clients, servers [2]*rdmanet.Conn
				for i := range clients {
					clients[i], err = d.Dial(t.Context(), "rdma", l.Addr().String())
					assert.NilError(t, err)
					defer clients[i].Close()
					servers[i], err = l.AcceptConn()
					assert.NilError(t, err)
					defer servers[i].Close()
					assert.NilError(t, clients[i].SetDeadline(time.Now().Add(patience)))
				}
				entered, proceed := make(chan bool, 10), make(chan bool)
				script.On(faultfabric.DeregMR).With(try.size).Before(func() {
					entered <- true
					<-proceed
				})
				defer close(proceed)
				try.end(t, &script, d.Zone, clients[0], servers[0])()
				for range 10 { // the first connection has events, too
					for i := range servers {
						_, err = servers[i].Write([]byte("x"))
						assert.NilError(t, err)
					}
					_, err = io.ReadFull(clients[1], make([]byte, 1))
					assert.NilError(t, err)
				}
				<-entered
				for range 10 {
					for i := range servers {
						_, err = servers[i].Write([]byte("x"))
						assert.NilError(t, err)
					}
					_, err = io.ReadFull(clients[1], make([]byte, 1))
					assert.NilError(t, err)
				}
				_, err = io.ReadFull(clients[0], make([]byte, 20))
				assert.NilError(t, err)
			})
		}
	})
}
