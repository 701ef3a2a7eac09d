package main

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/godat/godat/cverbs"
)

// Device is port 1 of an RDMA device with a pool of staging memory. It is safe for concurrent use.
type Device struct {
	context *cverbs.Context
	port    cverbs.PortAttr
	gids    []cverbs.GIDEntry // to choose from
	limit   int64

	mu    sync.Mutex
	bytes int64 // of all stages
	free  []*stage
}

// OpenDevice opens a device. Its staging memory has at most limit bytes. If index is not negative,
// it is the entry of the GID table to use.
func OpenDevice(name string, index int, limit int64) (d *Device, err error) {
	d = &Device{limit: limit, gids: make([]cverbs.GIDEntry, 1)}
	if d.context, err = cverbs.OpenDevice(name); err != nil {
		return nil, err
	}
	d.port, err = d.context.QueryPort(1)
	if err == nil && index >= 0 {
		d.gids[0], err = d.context.QueryGID(1, index)
	} else if err == nil {
		d.gids, err = d.context.GIDTable()
		d.gids = slices.DeleteFunc(d.gids, func(e cverbs.GIDEntry) bool { return e.Port != 1 })
	}
	if err != nil {
		d.context.Close()
	}
	return d, err
}

// Close closes the device. It fails while a transfer or the body of an answer uses the device.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shrink(d.limit)
	return d.context.Close()
}

// gid chooses the entry to reach a peer from: if possible one with the same kind of address.
func (d *Device) gid(peer cverbs.GID) cverbs.GIDEntry {
	best, _, _ := cverbs.RankGIDs(d.gids)
	same := slices.DeleteFunc(slices.Clone(d.gids), func(e cverbs.GIDEntry) bool {
		a, b := e.GID.Addr(), peer.Addr()
		return a.Is4() != b.Is4() || a.IsLinkLocalUnicast() != b.IsLinkLocalUnicast()
	})
	if like, _, ok := cverbs.RankGIDs(same); ok && !peer.IsZero() {
		best = like
	}
	return best
}

// stage is registered memory with the objects for a transfer. Each has its own protection domain,
// so that a peer that may write to it reaches no other. Only the queue pair is new in each
// transfer.
type stage struct {
	device  *Device
	owner   string // who has it, or had it last
	mem     []byte
	pd      *cverbs.PD
	mr      *cverbs.MR
	channel *cverbs.CompChannel
	cq      *cverbs.CQ
	qp      *cverbs.QP
	gid     cverbs.GIDEntry
	psn     uint32 // of the first request; random, so that packets for an earlier queue pair do not count
}

var errFull = errors.New("the staging memory is in use")

// stageSize returns the size of the stage for n bytes: a power of two, 64 KiB or more.
func stageSize(n int64) int64 { return 1 << max(16, bits.Len64(uint64(n-1))) }

// open returns a stage for n bytes, with no bytes of another owner, and a queue pair in INIT. The
// access is what the peer with this GID may do to the memory.
func (d *Device) open(owner string, n int64, peer cverbs.GID, access cverbs.AccessFlags) (*stage, error) {
	s, err := d.take(owner, stageSize(n))
	if err != nil {
		return nil, err
	}
	if s.owner != owner {
		clear(s.mem)
	}
	s.owner, s.gid, s.psn = owner, d.gid(peer), 1+rand.Uint32N(1<<24-1)
	s.qp, err = s.pd.CreateQP(cverbs.QPInit{SendCQ: s.cq, RecvCQ: s.cq, SigAll: true,
		Cap: cverbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err == nil {
		err = s.qp.ToInit(1, access)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (d *Device) take(owner string, n int64) (*stage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, s := range d.free {
		if int64(len(s.mem)) == n {
			d.free = slices.Delete(d.free, i, i+1)
			return s, nil
		}
	}
	if d.shrink(n); d.bytes+n > d.limit {
		return nil, fmt.Errorf("%w: %d bytes more are above the limit of %d", errFull, n, d.limit)
	}
	d.bytes += n
	s := &stage{device: d, owner: owner, mem: make([]byte, n)}
	var errs [4]error
	s.pd, errs[0] = d.context.AllocPD()
	s.mr, errs[1] = s.pd.RegMR(s.mem, cverbs.AccessLocalWrite|cverbs.AccessRemoteWrite)
	s.channel, errs[2] = d.context.CreateCompChannel()
	s.cq, errs[3] = d.context.CreateCQ(16, s.channel, 0)
	err := errors.Join(errs[:]...)
	if err != nil {
		s.destroy()
	}
	return s, err
}

// shrink destroys free stages, the oldest first, until n more bytes are within the limit.
func (d *Device) shrink(n int64) {
	for ; len(d.free) > 0 && d.bytes+n > d.limit; d.free = d.free[1:] {
		d.free[0].destroy()
	}
}

func (s *stage) destroy() {
	s.cq.Close()
	s.channel.Close()
	s.mr.Close()
	s.pd.Close()
	s.device.bytes -= int64(len(s.mem))
}

// close destroys the queue pair, so that no peer reaches the memory, and makes the stage free. A
// stage that a peer may still reach is lost.
func (s *stage) close() {
	if s.qp == nil || s.qp.Close() == nil {
		s.device.mu.Lock()
		defer s.device.mu.Unlock()
		s.device.free = append(s.device.free, s)
	}
}

// token describes the queue pair and the memory.
func (s *stage) token() token {
	return token{s.qp.Num(), s.gid.GID, s.mr.RKey(), s.mr.Addr(), uint64(len(s.mem)), 1, s.device.port.LID}
}

// connect moves the queue pair to RTS. A token of zeroes means a peer on this device.
func (s *stage) connect(peer token, qpn, psn uint32) error {
	if peer.GID.IsZero() {
		peer = s.token()
	}
	ah := cverbs.AHAttr{DGID: peer.GID, DLID: peer.LID, SGIDIndex: uint8(s.gid.Index), HopLimit: 64, IsGlobal: true,
		Port: 1}
	err := s.qp.ToRTR(cverbs.QPAttr{AH: ah, PathMTU: s.device.port.ActiveMTU, DestQPNum: qpn, RQPSN: psn,
		MaxDestRDAtomic: 1, MinRNRTimer: 12})
	if err == nil {
		err = s.qp.ToRTS(cverbs.QPAttr{SQPSN: s.psn, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRDAtomic: 1})
	}
	return err
}

// expect posts the receive for the peer's RDMA write. It takes no data: a Send with data fails.
func (s *stage) expect() error {
	_, err := s.qp.PostRecv([]cverbs.RecvWR{{ID: uint64(s.psn)}}, nil)
	return err
}

// received waits for the peer's RDMA write with the cookie, and returns its number of bytes.
func (s *stage) received(ctx context.Context, cookie uint32) (int64, error) {
	wc, err := s.wait(ctx)
	if err == nil && (wc.Opcode != cverbs.WCRecvRDMAWithImm || wc.Flags&cverbs.WCWithImm == 0 || wc.Imm != cookie) {
		err = fmt.Errorf("%v with %x has come instead of an RDMA write with the cookie", wc.Opcode, wc.Imm)
	}
	return int64(wc.ByteLen), err
}

// write writes the first n bytes to the peer, with the cookie as immediate data.
func (s *stage) write(ctx context.Context, n int64, addr uint64, rkey, cookie uint32) error {
	_, err := s.qp.PostSend([]cverbs.SendWR{{ID: uint64(s.psn), Opcode: cverbs.OpRDMAWriteWithImm, RemoteAddr: addr,
		RKey: rkey, Imm: cookie, NumSGE: 1}}, []cverbs.SGE{{Addr: s.mr.Addr(), Length: uint32(n), LKey: s.mr.LKey()}})
	if err == nil {
		_, err = s.wait(ctx)
	}
	return err
}

// wait returns the completion of the one request. What an earlier queue pair left has another ID.
func (s *stage) wait(ctx context.Context) (cverbs.WC, error) {
	wc := make([]cverbs.WC, 1)
	for armed := false; ; {
		n, err := s.cq.PollSpin(wc, 100)
		switch {
		case n == 1 && wc[0].ID == uint64(s.psn) && wc[0].Status == cverbs.WCSuccess:
			return wc[0], nil
		case n == 1 && wc[0].ID == uint64(s.psn):
			err = fmt.Errorf("the RDMA transfer has failed: %v", wc[0].Status)
		case n == 1:
		case armed && err == nil:
			_, err = s.channel.WaitContext(ctx)
			armed = false
		case err == nil:
			err = s.cq.Arm(false)
			armed = true
		}
		if err != nil {
			return wc[0], err
		}
	}
}
