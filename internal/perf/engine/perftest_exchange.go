package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/cverbs"
)

// perftestVersion is the version of perftest that this end claims to be. It is the version in
// Debian 12. If both ends sent 6.28 or more, they would negotiate further settings.
const perftestVersion = "6.06"

// Versions of perftest that datperf can talk to. 5.70 is the oldest version that newer versions
// accept.
const perftestOldest, perftestNewest = "5.70", "6.29"

// exchange is the connection to one of perftest's programs over which both ends exchange settings.
// The ends send messages of the same length in turn, the client first.
type exchange struct {
	conn   net.Conn
	client bool // this end is the client
	gids   bool // the descriptions of queue pairs contain a GID

	version string // version of the peer, once it is known
}

// perftestWait is how long swap waits for the peer's message. During this time the peer may
// measure.
const perftestWait = 30 * time.Minute

// swap sends a message to the peer, and returns the peer's message, which has the same length. The
// parameter own is the message to send; the parameter what names the message in errors.
func (x *exchange) swap(what string, own []byte) ([]byte, error) {
	x.conn.SetDeadline(time.Now().Add(perftestWait))
	peer := make([]byte, len(own))
	write := func() error { _, err := x.conn.Write(own); return err }
	read := func() error { _, err := io.ReadFull(x.conn, peer); return err }
	first, second := read, write
	if x.client {
		first, second = write, read
	}
	err := first()
	if err == nil {
		err = second()
	}
	switch {
	case err == nil:
		return peer, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it closed the connection; its test, size and iterations must be the same, " +
			"and it must exchange over TCP (without -R and -z)")
	}
	return nil, fmt.Errorf("perftest, %s: %w", what, err)
}

// versions sends this end's version to the peer and returns the peer's version. It returns an error
// if datperf cannot talk to that version.
func (x *exchange) versions() (string, error) {
	own := make([]byte, 16)
	copy(own, perftestVersion)
	b, err := x.swap("versions", own)
	if err != nil {
		return "", err
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	version := strconv.QuoteToASCII(string(text))
	if v, err := strconv.ParseFloat(string(text), 64); err != nil || !(v > 0) {
		return "", fmt.Errorf("the peer is not a program of perftest: its version is %s", version)
	}
	newest := perftestNewest
	if len(text) != len(newest) || string(text) < perftestOldest || string(text) > newest { // compared digit by digit
		return "", fmt.Errorf("the peer is perftest %s, datperf can talk to %s to %s", string(text), perftestOldest, newest)
	}
	x.version = string(text)
	return string(text), nil
}

// number sends a number to the peer and returns the peer's number. Each number has four bytes.
func (x *exchange) number(what string, own int) (int, error) {
	b, err := x.swap(what, binary.BigEndian.AppendUint32(nil, uint32(own)))
	if err != nil {
		return 0, err
	}
	return int(binary.BigEndian.Uint32(b)), nil
}

// mtu exchanges the path MTUs and returns the smaller one.
func (x *exchange) mtu(own cverbs.MTU) (cverbs.MTU, error) {
	b, err := x.swap("path MTU", []byte{'0' + byte(own), 0})
	if err != nil {
		return 0, err
	}
	peer := cverbs.MTU(b[0] - '0')
	if peer.Bytes() == 0 {
		return 0, fmt.Errorf("perftest, path MTU: code %q", b[0])
	}
	return min(own, peer), nil
}

// queuePair describes one end's queue pair.
type queuePair struct {
	lid, reads, num, psn uint32
	remote
	gid cverbs.GID
}

func (q *queuePair) encode(gid bool) []byte {
	text := fmt.Sprintf("%04x:%04x:%06x:%06x:%08x:%016x:", q.lid, q.reads, q.num, q.psn, q.Key, q.Addr)
	if !gid {
		return append([]byte(text), "00000000\x00"...)
	}
	for _, b := range q.gid {
		text += fmt.Sprintf("%02x:", b)
	}
	return append([]byte(text), "00000000:\x00"...)
}

// decode sets q from a description in the form that encode returns.
func (q *queuePair) decode(b []byte, gid bool) error {
	fields := strings.Split(strings.TrimRight(string(b), "\x00"), ":")
	need := 7
	if gid {
		need += len(q.gid)
	}
	if len(fields) < need {
		return fmt.Errorf("perftest, queue pair: %d fields instead of %d: %q", len(fields), need, b)
	}
	number := func(i, bits int) (n uint64) {
		v, err := strconv.ParseUint(fields[i], 16, bits)
		if err != nil {
			fields[i] = ""
		}
		return v
	}
	q.lid, q.reads, q.num = uint32(number(0, 16)), uint32(number(1, 16)), uint32(number(2, 24))
	q.psn, q.Key, q.Addr = uint32(number(3, 24)), uint32(number(4, 32)), number(5, 64)
	for i := range q.gid {
		if gid {
			q.gid[i] = byte(number(6+i, 8))
		}
	}
	for i, f := range fields[:need] {
		if f == "" {
			return fmt.Errorf("perftest, queue pair: field %d is not a hexadecimal number: %q", i+1, b)
		}
	}
	return nil
}

// queuePairs sends a message for each of this end's queue pairs, and returns the queue pairs that
// the peer's messages describe. The programs also exchange these messages to wait for each other.
func (x *exchange) queuePairs(what string, own []queuePair) ([]queuePair, error) {
	peers := make([]queuePair, len(own))
	for i := range own {
		b, err := x.swap(what, own[i].encode(x.gids))
		if err == nil {
			err = peers[i].decode(b, x.gids)
		}
		if err != nil {
			return nil, err
		}
	}
	return peers, nil
}

// perftestReport contains the figures of one end in a bandwidth test.
type perftestReport struct {
	size, iters             uint64
	peak, average, messages float64 // MB/s of 2^20 bytes, and millions of messages per second
}

// report sends this end's figures to the peer and returns the peer's figures.
func (x *exchange) report(own perftestReport) (peer perftestReport, err error) {
	for _, f := range []struct {
		own uint64
		set func(uint64)
	}{
		{own.size, func(v uint64) { peer.size = v }},
		{own.iters, func(v uint64) { peer.iters = v }},
		{math.Float64bits(own.peak), func(v uint64) { peer.peak = math.Float64frombits(v) }},
		{math.Float64bits(own.average), func(v uint64) { peer.average = math.Float64frombits(v) }},
		{math.Float64bits(own.messages), func(v uint64) { peer.messages = math.Float64frombits(v) }},
	} {
		b, err := x.swap("figures", binary.BigEndian.AppendUint64(nil, f.own))
		if err != nil {
			return peer, err
		}
		f.set(binary.BigEndian.Uint64(b))
	}
	return peer, nil
}

// check returns an error for impossible figures. The figures of an end that does not initiate have
// no meaning.
func (r *perftestReport) check() error {
	for _, v := range []float64{r.average, r.messages} {
		if !(v >= 0 && v < 1<<40) {
			return fmt.Errorf("perftest, figures: %g is impossible", v)
		}
	}
	return nil
}

// done sends the message that ends the exchange.
func (x *exchange) done() error {
	x.conn.SetDeadline(time.Now().Add(answerTime))
	_, err := x.conn.Write([]byte("done\x00"))
	return err
}

// closeWith closes the connection when ctx is done, unless stop is called first.
func (x *exchange) closeWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { x.conn.Close() })
}
