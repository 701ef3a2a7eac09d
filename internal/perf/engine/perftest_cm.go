package engine

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
)

// cmMessage is the length in bytes of a queue pair's description with -R. No message of the
// exchange is longer.
const cmMessage = 56

// encodeCM returns the queue pair's description as perftest sends it with -R: numbers in network
// byte order, aligned as in C.
func (q *queuePair) encodeCM() []byte {
	b := make([]byte, 0, cmMessage)
	for _, v := range []uint32{q.lid, q.reads, q.num, q.psn, q.Key, 0} {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	b = binary.BigEndian.AppendUint64(b, q.Addr)
	b = append(b, q.gid[:]...)
	return append(b, make([]byte, 8)...)
}

// decodeCM sets q from a description in the form that encodeCM returns.
func (q *queuePair) decodeCM(b []byte) {
	for i, v := range []*uint32{&q.lid, &q.reads, &q.num, &q.psn, &q.Key} {
		*v = binary.BigEndian.Uint32(b[4*i:])
	}
	q.Addr = binary.BigEndian.Uint64(b[24:])
	copy(q.gid[:], b[32:])
}

// cmConn is the connection for the exchange with a program of perftest that runs with -R. It is a
// queue pair that the connection manager connects. Each Write sends one message. Only one goroutine
// may call Read and Write.
type cmConn struct {
	l             *cverbsLink
	local, remote net.Addr
	deadline      time.Time
	arrived       []done // received messages of which Read has returned nothing yet
	left          []byte // rest of the message that Read returns now
	sent          uint64
	received      uint64
	once          sync.Once
	closed        error
	gone          chan struct{} // closed when the peer has disconnected or this end has closed
}

// PerftestCM connects to one of perftest's programs at address by the connection manager, as
// perftest does with -R. If address is "", it waits until such a program connects to port.
func (cl *Client) PerftestCM(ctx context.Context, address string, port int) (net.Conn, error) {
	var local netip.Addr
	var to netip.AddrPort
	if address != "" {
		var err error
		if to, err = resolveCM(ctx, address, port); err != nil {
			return nil, err
		}
		if probe, err := net.Dial("udp", to.String()); err == nil { // sends nothing, but selects the route
			local = probe.LocalAddr().(*net.UDPAddr).AddrPort().Addr()
			probe.Close()
		}
	}
	chosen, err := cl.chooseVerbs(local)
	if err != nil {
		return nil, err
	}
	c := result.Default()
	c.Layer, c.Size, c.Iters, c.RxDepth, c.Signal = result.Cverbs, cmMessage, 1, 16, 1
	c.Knobs = result.Knobs{}
	c.Complete()
	lay, err := layoutOf(&c)
	if err != nil {
		return nil, err
	}
	l, err := openCverbs(&c, lay, chosen)
	if err != nil {
		return nil, err
	}
	l.foreign, l.port = true, uint16(port)
	k := &cmConn{l: l, gone: make(chan struct{})}
	if err := postFirstReceives(&c, l); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	if address == "" {
		err = k.accept(ctx)
	} else {
		err = k.dial(ctx, to)
	}
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	l.setRemote(remote{})
	go k.watch()
	return k, nil
}

func (cl *Client) chooseVerbs(local netip.Addr) (choice, error) {
	chosen, err := choose(cl.Device, local)
	if err == nil {
		err = chosen.useGID(cl.GID)
	}
	if err == nil && chosen.Fabric != fabricVerbs {
		err = fmt.Errorf("--peer perftest: %s has no verbs beneath it", chosen.Name)
	}
	return chosen, err
}

// resolveCM returns the address and port to connect to. The argument address is an IP address with
// a port, or a host name or IPv4 address without one. With -R perftest resolves host names to IPv4
// addresses only.
func resolveCM(ctx context.Context, address string, port int) (netip.AddrPort, error) {
	if to, err := netip.ParseAddrPort(address); err == nil {
		return to, nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", strings.Trim(address, "[]"))
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(all[0].Unmap(), uint16(port)), nil
}

func (k *cmConn) dial(ctx context.Context, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	k.local = &net.TCPAddr{IP: k.l.addr.AsSlice()}
	k.remote = net.TCPAddrFromAddrPort(to)
	if err := k.l.connectForeign(ctx, to); err != nil {
		return fmt.Errorf("no program of perftest to be reached at %v over the connection manager: %w "+
			"(start one there, for example: ib_send_lat -R)", to, err)
	}
	return nil
}

func (k *cmConn) accept(ctx context.Context) error {
	at, err := k.l.listen()
	if err != nil {
		return err
	}
	k.local, k.remote = net.TCPAddrFromAddrPort(at), net.TCPAddrFromAddrPort(at)
	if err := k.l.accept(ctx, 0); err != nil {
		return err
	}
	k.remote = net.TCPAddrFromAddrPort(k.l.from)
	return k.l.listener.Close() // the measurement listens on the same port
}

// connectForeign connects all queue pairs to one of perftest's programs. While the program refuses,
// because it does not listen yet, connectForeign tries again until ctx is done.
func (l *cverbsLink) connectForeign(ctx context.Context, to netip.AddrPort) error {
	for qp := range l.qps {
		var refused error
		for {
			err := l.connectQP(ctx, to, 0, qp)
			if err == nil {
				break
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return cmp.Or(refused, err) // err may only say that ctx is done
			}
			refused = err
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return refused
			}
		}
	}
	return nil
}

// watch waits until the peer disconnects or this end closes. Then it closes the channel k.gone.
func (k *cmConn) watch() {
	defer close(k.gone)
	for {
		ev, err := k.l.ch.GetContext(context.Background())
		if err != nil || ev.Type == cverbs.CMEventDisconnected {
			return
		}
	}
}

// step waits for completions, for at most parkTime. It appends received messages to arrived, and
// reports whether a Send has completed.
func (k *cmConn) step() (sent bool, err error) {
	var all [pollBatch]done
	n, err := k.l.wait(all[:], parkTime)
	if err != nil {
		return false, err
	}
	for _, d := range all[:n] {
		if d.recv {
			k.arrived = append(k.arrived, d)
		} else {
			sent = true
		}
	}
	if n > 0 {
		return sent, nil
	}
	select {
	case <-k.gone:
		return false, io.EOF
	default:
	}
	if !k.deadline.IsZero() && time.Now().After(k.deadline) {
		return false, os.ErrDeadlineExceeded
	}
	return false, nil
}

// Write sends a message and returns when its Send has completed.
func (k *cmConn) Write(b []byte) (int, error) {
	if len(b) > cmMessage {
		return 0, fmt.Errorf("a message of %d bytes, the longest is %d", len(b), cmMessage)
	}
	copy(k.l.buf[k.l.lay.tx.at(0, k.sent):], b)
	k.l.setOp(result.Send, len(b))
	if err := k.l.request(0, k.sent, 1, true); err != nil {
		return 0, err
	}
	k.sent++
	for {
		if sent, err := k.step(); sent || err != nil {
			return len(b), err
		}
	}
}

// Read reads from the current message. If nothing is left of that message, Read waits for the next
// one.
func (k *cmConn) Read(b []byte) (int, error) {
	for len(k.left) == 0 {
		if len(k.arrived) == 0 {
			if _, err := k.step(); err != nil && len(k.arrived) == 0 {
				return 0, err
			}
			continue
		}
		d := k.arrived[0]
		k.arrived = k.arrived[1:]
		at := k.l.lay.rx.at(0, uint64(d.slot))
		k.left = append(k.left[:0], k.l.buf[at:at+int(d.n)]...)
		if err := k.l.receive(0, k.received+uint64(k.l.c.RxDepth), 1); err != nil {
			return 0, err
		}
		k.received++
	}
	n := copy(b, k.left)
	k.left = k.left[n:]
	return n, nil
}

// Close closes the connection. It may be called repeatedly and concurrently.
func (k *cmConn) Close() error {
	k.once.Do(func() { k.closed = k.l.close() })
	return k.closed
}

func (k *cmConn) LocalAddr() net.Addr                { return k.local }
func (k *cmConn) RemoteAddr() net.Addr               { return k.remote }
func (k *cmConn) SetDeadline(t time.Time) error      { k.deadline = t; return nil }
func (k *cmConn) SetReadDeadline(t time.Time) error  { return k.SetDeadline(t) }
func (k *cmConn) SetWriteDeadline(t time.Time) error { return k.SetDeadline(t) }
