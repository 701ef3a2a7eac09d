package engine

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// link is one end of a case's connections over one layer. Both layers run the same loops, so that
// two runs differ by the layer's cost only. After connecting one goroutine calls the data path.
type link interface {
	memory() remote     // of this end, for the peer
	bytes() []byte      // the same memory
	setRemote(r remote) // the peer's

	listen() (netip.AddrPort, error)
	accept(ctx context.Context, token uint64) error // all queue pairs
	connect(ctx context.Context, to netip.AddrPort, token uint64) error

	// setOp selects the operation that later requests post; a transaction has several.
	setOp(op string, size int)
	// request posts n operations of the case; the first has number seq on its queue pair. flush
	// makes the last one signalled.
	request(qp int, seq uint64, n int, flush bool) error
	// receive posts n receives into consecutive slots.
	receive(qp int, slot uint64, n int) error
	// poll takes completions without blocking, polling up to polls times for the first one. wait
	// blocks until there is one, or timeout. A failed completion is an error.
	poll(done []done, polls int) (int, error)
	wait(done []done, timeout time.Duration) (int, error)

	unsignalled(qp int) uint32 // requests posted after the last signalled one
	notes() result.Notes
	path() *result.Path // of the first connection; nil if the fabric has none
	close() error
}

// remote is the address and key with which a peer reaches memory.
type remote struct {
	Addr uint64 `json:"addr"`
	Key  uint32 `json:"key"`
}

// done is a successful completion: of n requests of a queue pair, or of a receive of n bytes into a
// slot.
type done struct {
	recv bool
	qp   int32
	n    uint32 // requests, or bytes received
	slot uint32 // receives
	imm  uint32
}

// Cookies identify requests and receives in their completions.
const recvCookie = 1 << 63

func requestCookie(qp int, n uint32) uint64 { return uint64(qp)<<32 | uint64(n) }

func receiveCookie(qp int, slot uint64) uint64 { return recvCookie | uint64(qp)<<32 | slot&0xFFFFFFFF }

// fromCookie decodes a cookie; of a receive the caller adds n and imm.
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

// next reports whether the next request of a queue pair is signalled, and then how many requests
// its completion covers.
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

// setupTime bounds connecting the queue pairs of a case.
const setupTime = 60 * time.Second

// privateSize is the length of a connection's private data: token and queue pair number.
const privateSize = 12

// errNotOurs is the error for a connection request that belongs to no case.
var errNotOurs = errors.New("a connection request that is not of this case")

// pollBatch is the number of completions of one poll.
const pollBatch = 64
