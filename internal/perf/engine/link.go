package engine

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// link is one end of a case's connections. There are two implementations, called layers: one over
// package udat and one over package cverbs. The same loops run over both, so that two runs differ
// only by the cost of the layer. After connecting, only one goroutine may call the methods that
// post and poll.
type link interface {
	memory() remote     // address and key of this end's memory, for the peer
	bytes() []byte      // this end's memory
	setRemote(r remote) // the peer's memory

	listen() (netip.AddrPort, error)
	accept(ctx context.Context, token uint64) error // returns when all queue pairs are connected
	connect(ctx context.Context, to netip.AddrPort, token uint64) error

	// request posts n operations on a queue pair. The first one has sequence number seq. If flush
	// is true, the last one is signalled.
	request(qp int, seq uint64, n int, flush bool) error
	// receive posts n receives into consecutive slots. The parameter slot is the first of them.
	receive(qp int, slot uint64, n int) error
	// poll stores completions in done and returns their number; it does not block. If there are
	// none, it tries again. The parameter polls is the largest number of tries. The method wait
	// blocks until there is a completion or the timeout has passed. The methods poll and wait
	// return an error for a failed completion.
	poll(done []done, polls int) (int, error)
	wait(done []done, timeout time.Duration) (int, error)

	unsignalled(qp int) uint32 // requests posted after the last signalled one
	path() *result.Path        // path of the first connection; nil if the fabric has no paths
	close() error
}

// remote is the address and the key with which a peer accesses this end's memory.
type remote struct {
	Addr uint64 `json:"addr"`
	Key  uint32 `json:"key"`
}

// A done describes a successful completion. It means that n requests of a queue pair have
// completed, or that a receive of n bytes into a slot has completed.
type done struct {
	recv bool
	qp   int32
	n    uint32 // number of requests, or of bytes received
	slot uint32 // slot of a receive
	imm  uint32
}

// recvCookie is set in the cookie of a receive. Cookies identify requests and receives in
// completions.
const recvCookie = 1 << 63

func requestCookie(qp int, n uint32) uint64 { return uint64(qp)<<32 | uint64(n) }

func receiveCookie(qp int, slot uint64) uint64 { return recvCookie | uint64(qp)<<32 | slot&0xFFFFFFFF }

// fromCookie decodes a cookie. For a receive the caller sets n and imm.
func (d *done) fromCookie(c uint64) {
	d.recv, d.qp = c&recvCookie != 0, int32(c>>32&0x7FFFFFFF)
	if d.recv {
		d.slot = uint32(c)
	} else {
		d.n = uint32(c)
	}
}

// signals counts unsignalled requests per queue pair.
type signals struct {
	every   uint32
	pending []uint32
}

func newSignals(c *result.Case) signals {
	return signals{every: uint32(c.Signal), pending: make([]uint32, c.QPs)}
}

// next reports whether the next request of a queue pair must be signalled. If so, it also returns
// how many requests the completion of that request covers.
func (s *signals) next(qp int, flush bool) (uint32, bool) {
	n := s.pending[qp] + 1
	if n >= s.every || flush {
		s.pending[qp] = 0
		return n, true
	}
	s.pending[qp] = n
	return 0, false
}

func (s *signals) unsignalled(qp int) uint32 { return s.pending[qp] }

// setupTime is how long connecting the queue pairs of a case may take.
const setupTime = 60 * time.Second

// privateSize is the length of a connection's private data: token and queue pair number.
const privateSize = 12

// errNotOurs is the error for a connection request that does not belong to the case.
var errNotOurs = errors.New("a connection request that is not of this case")

// pollBatch is the largest number of completions that one poll returns.
const pollBatch = 64
