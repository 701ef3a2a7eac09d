package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/godat/godat/udat"
)

// The protocol of dtest. First the server tells its address and provider over TCP. Then there is
// one connection, with 48 bytes of private data each way, and on it:
//
//  1. both ends tell where their targets are, in a message of 16 bytes (place);
//  2. both write to the other's target in a burst (-u: only the client), and agree on its end: the
//     client sends its place once more, the server answers with its own;
//  3. both read from the other's target 4 times, and tell their places again;
//  4. the client sends 100 messages, each of which the server answers with one;
//  5. the client disconnects.
//
// With -w the last write of the burst has immediate data, and 3 and 4 are left out. With -W only a
// volley follows 1: the ends write in turn, and notice a write by its last byte, which counts.
const (
	dtestQual      = udat.ConnQual(45248)
	dtestReads     = 4
	dtestPings     = 100
	dtestImmediate = 0x7777
	dtestPing      = 0x55 // the first byte of a message of the client
	dtestPong      = 0xaa
	dtestText      = "RDMA write data" // in what is written
)

// dtestSwitches are the switches of dtest that a peer has to know. -t and -v only print.
type dtestSwitches struct {
	length, burst, rate, increment            int
	stream, volley, checked, allSizes, oneWay bool
	polls, notified                           bool
	delay                                     int
}

func parseDtest(switches []string) (o dtestSwitches, err error) {
	f := flag.NewFlagSet("dtest", flag.ContinueOnError)
	f.IntVar(&o.length, "b", 4<<20, "bytes of the target")
	f.IntVar(&o.burst, "B", 1000, "writes of a burst")
	f.IntVar(&o.rate, "S", 0, "one write in so many is signaled (default 10; of a volley 1)")
	f.BoolVar(&o.stream, "w", false, "only writes, the last one with immediate data")
	f.BoolVar(&o.volley, "W", false, "only writes, in turn")
	f.BoolVar(&o.checked, "D", false, "-W, and check what comes")
	f.BoolVar(&o.allSizes, "a", false, "with -W, powers of 2 up to -b, and one byte less and more")
	f.IntVar(&o.increment, "i", 0, "with -W, multiples of this up to -b, and one byte less and more")
	f.BoolVar(&o.oneWay, "u", false, "only the client writes")
	f.BoolVar(&o.polls, "p", false, "poll")
	f.BoolVar(&o.notified, "c", false, "wait on a notification object")
	f.IntVar(&o.delay, "d", 0, "seconds before the server accepts")
	if err := f.Parse(switches); err != nil {
		return o, err
	}
	o.volley = o.volley || o.checked
	o.allSizes = o.allSizes || o.increment > 0
	if o.rate == 0 {
		o.rate = 10
		if o.volley {
			o.rate = 1
		}
	}
	o.rate = min(o.rate, o.burst)
	if o.length < 1 || o.burst < 1 || o.rate < 1 || o.increment < 0 {
		return o, fmt.Errorf("-b %d -B %d -S %d -i %d: too small", o.length, o.burst, o.rate, o.increment)
	}
	return o, nil
}

// dtest is one end.
type dtest struct {
	*tester
	dtestSwitches
	client bool
}

func newDtest(addr netip.Addr, switches []string, client bool) (*dtest, error) {
	o, err := parseDtest(switches)
	if err != nil {
		return nil, err
	}
	t, err := newTester(addr, o.length, dtestPings+o.rate, udat.PrivAll)
	if err != nil {
		return nil, err
	}
	switch {
	case o.polls:
		t.next = poll
	case o.notified:
		if t.next, err = t.notified(); err != nil {
			t.close()
		}
	}
	return &dtest{t, o, client}, err
}

func dtestServer(addr netip.Addr, switches []string) error {
	t, err := newDtest(addr, switches, false)
	if err != nil {
		return err
	}
	defer t.close()
	requests, err := t.listen(dtestQual)
	if err != nil {
		return err
	}
	if err := tellClient(addr, false); err != nil {
		return err
	}
	cr, err := t.request(requests, pattern(1))
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(t.delay) * time.Second)
	if err := cr.Accept(t.ep, pattern(2)); err != nil {
		return err
	}
	if err := t.established(1); err != nil {
		return err
	}
	if err := t.run(); err != nil {
		return err
	}
	return t.disconnected(1)
}

func dtestClient(addr netip.Addr, switches []string) error {
	t, err := newDtest(addr, switches, true)
	if err != nil {
		return err
	}
	defer t.close()
	server, err := askServer(addr, false)
	if err != nil {
		return err
	}
	if err := t.connect(server, dtestQual, pattern(1), pattern(2)); err != nil {
		return err
	}
	if err := t.run(); err != nil {
		return err
	}
	return t.disconnect(t.ep)
}

func (t *dtest) run() error {
	if err := t.tell(); err != nil {
		return err
	}
	if err := t.hear(); err != nil {
		return err
	}
	if t.volley {
		for _, size := range t.sizes() {
			if err := t.exchange(size); err != nil {
				return fmt.Errorf("%d bytes: %w", size, err)
			}
		}
		return nil
	}
	if err := t.bursts(); err != nil || t.stream {
		return err
	}
	if err := t.reads(); err != nil {
		return err
	}
	return t.messages()
}

// bursts writes a burst and waits until the peer's has come.
func (t *dtest) bursts() error {
	copy(t.buffer(bufferOut, t.size), dtestText+" of Go\x00")
	writes, written := t.client || !t.oneWay, !t.client || !t.oneWay
	for i := 1; writes && i <= t.burst; i++ {
		if err := t.write(t.size, i, t.stream && i == t.burst); err != nil {
			return err
		}
	}
	if written && t.stream {
		if err := t.hearImmediate(dtestImmediate); err != nil {
			return err
		}
	}
	if t.client {
		if err := t.tell(); err != nil {
			return err
		}
	}
	if err := t.hear(); err != nil {
		return err
	}
	if !t.client {
		if err := t.tell(); err != nil {
			return err
		}
	}
	if text := t.target.Bytes(); written && !bytes.Contains(text, []byte(dtestText)) {
		return fmt.Errorf("the peer has written %.40q", text)
	}
	return nil
}

// write posts the write of that number. Every rate-th one is signaled: its completion says that
// those before it are done too.
func (t *dtest) write(size, number int, immediate bool) (err error) {
	flags := udat.CompletionSuppress
	if number%t.rate == 0 {
		flags = udat.CompletionDefault
	}
	iov, to := t.bufferIOV(bufferOut, size), t.peer
	to.SegmentLength = uint64(size)
	if immediate {
		err = t.ep.PostRDMAWriteImmediate(iov, udat.Cookie(number), to, dtestImmediate, flags)
	} else {
		err = t.ep.PostRDMAWrite(iov, udat.Cookie(number), to, flags)
	}
	if flags == udat.CompletionDefault {
		err = t.done(err)
	}
	return err
}

func (t *dtest) reads() error {
	for range dtestReads {
		err := t.ep.PostRDMARead(t.bufferIOV(bufferOut, t.size), 0, t.peer, udat.CompletionDefault)
		if err := t.done(err); err != nil {
			return err
		}
	}
	if err := t.tell(); err != nil {
		return err
	}
	return t.hear()
}

func (t *dtest) messages() error {
	for range dtestPings {
		if err := t.ep.PostRecv(t.bufferIOV(bufferIn, t.size), 0, udat.CompletionDefault); err != nil {
			return err
		}
	}
	mine, theirs := byte(dtestPing), byte(dtestPong)
	if !t.client {
		mine, theirs = theirs, mine
	}
	t.buffer(bufferOut, 1)[0] = mine
	send := func() error { return t.ep.PostSend(t.bufferIOV(bufferOut, t.size), 0, udat.CompletionSuppress) }
	for i := range dtestPings {
		if t.client {
			if err := send(); err != nil {
				return err
			}
		}
		if _, err := t.received(t.size); err != nil {
			return err
		}
		if got := t.buffer(bufferIn, 1)[0]; got != theirs {
			return fmt.Errorf("message %d begins with 0x%x, want 0x%x", i, got, theirs)
		}
		if !t.client {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return nil
}

// sizes are those of the volleys.
func (t *dtest) sizes() (sizes []int) {
	if !t.allSizes {
		return []int{t.size}
	}
	for n := max(t.increment, 1); n <= t.size; {
		if n > 4 {
			sizes = append(sizes, n-1)
		}
		sizes = append(sizes, n)
		if 1 < n && n < t.size {
			sizes = append(sizes, n+1)
		}
		if t.increment > 0 {
			n += t.increment
		} else {
			n *= 2
		}
	}
	return sizes
}

// exchange is a volley: the client serves.
func (t *dtest) exchange(size int) error {
	for count := 1; count <= t.burst; count++ {
		if !t.client {
			if err := t.written(size, byte(count)); err != nil {
				return err
			}
		}
		mine, theirs := t.buffer(bufferOut, size), t.target.Bytes()[:size]
		if t.checked {
			t.fill(mine[:size-1], theirs, count)
		}
		mine[size-1] = byte(count)
		if err := t.write(size, count, false); err != nil {
			return err
		}
		if !t.client {
			continue
		}
		if err := t.written(size, byte(count)); err != nil {
			return err
		}
		if t.checked && !bytes.Equal(mine, theirs) {
			return fmt.Errorf("write %d: sent %.40q, got %.40q", count, mine, theirs)
		}
	}
	return nil
}

// written waits until the last byte of what the peer writes has the value. dtest takes for granted
// that the others have come too, which InfiniBand does not promise.
func (t *dtest) written(size int, value byte) error {
	last := size - 1
	for until := time.Now().Add(patience); ; {
		word, err := t.target.LoadUint64(last &^ 7)
		if err != nil {
			return err
		}
		var b [8]byte
		if binary.NativeEndian.PutUint64(b[:], word); b[last&7] == value {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the last byte is %d, want %d", b[last&7], value)
		}
	}
}

// fill makes what is written: the client has 4 patterns and random bytes, by turns, and the server
// writes back what came.
func (t *dtest) fill(mine, theirs []byte, count int) {
	patterns := []byte{0, 0xff, 0x55, 0xaa}
	for i := range mine {
		switch turn := (count - 1) % (len(patterns) + 1); {
		case !t.client:
			mine[i] = theirs[i]
		case turn < len(patterns):
			mine[i] = patterns[turn]
		default:
			mine[i] = byte(rand.Uint32())
		}
	}
}
