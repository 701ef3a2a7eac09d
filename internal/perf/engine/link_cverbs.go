package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/internal/softroce"
)

// cverbsLink is a link over package cverbs. It has one completion queue for all queue pairs.
type cverbsLink struct {
	c    *result.Case
	lay  layout
	addr netip.Addr // address of the device, to listen on and to connect from
	over cverbs.PathOptions
	buf  []byte

	verbsPort uint8
	retries   uint8 // default number of transport retries

	ctx    *cverbs.Context
	pd     *cverbs.PD
	comp   *cverbs.CompChannel
	cq     *cverbs.CQ
	srq    *cverbs.SRQ
	mr     *cverbs.MR
	qps    []*cverbs.QP
	byNum  map[uint32]int32 // queue pair by number; only with an SRQ, whose cookies do not identify the queue pair
	iwarp  bool
	inline int
	peer   remote
	paths  []datagramPath // destinations of UD queue pairs; nil with other transports
	header int            // bytes before the message in a receive
	peers  []remote       // memory of the peer per queue pair, with perftest only
	signals
	opened []func() error // functions that close the opened objects, to be called in reverse order

	ch       *cverbs.EventChannel
	listener *cverbs.CMID

	opcode cverbs.WROpcode  // operation of all requests
	flags  cverbs.SendFlags // flags of all requests, without SendSignaled
	local  area
	target area
	wrs    []cverbs.SendWR // setRemote fills in the fields that are the same for all requests
	rwrs   []cverbs.RecvWR
	sges   []cverbs.SGE
	rsges  []cverbs.SGE
	wcs    []cverbs.WC
	armed  bool
}

var cverbsOps = map[string]cverbs.WROpcode{
	result.Send: cverbs.OpSend, result.SendImm: cverbs.OpSendWithImm, result.Write: cverbs.OpRDMAWrite,
	result.WriteImm: cverbs.OpRDMAWriteWithImm, result.Read: cverbs.OpRDMARead,
	result.FetchAdd: cverbs.OpAtomicFetchAndAdd, result.CmpSwap: cverbs.OpAtomicCmpAndSwp,
}

// keep makes l.close close v, if err is nil. It returns v and err.
func keep[T interface{ Close() error }](l *cverbsLink, v T, err error) (T, error) {
	if err == nil {
		l.opened = append(l.opened, v.Close)
	}
	return v, err
}

func (l *cverbsLink) close() error {
	var errs []error
	for len(l.opened) > 0 {
		last := len(l.opened) - 1
		errs = append(errs, l.opened[last]())
		l.opened = l.opened[:last]
	}
	return errors.Join(errs...)
}

func openCverbs(c *result.Case, lay layout, chosen choice) (*cverbsLink, error) {
	l := &cverbsLink{
		c: c, lay: lay, signals: newSignals(c),
		wrs: make([]cverbs.SendWR, c.Batch), sges: make([]cverbs.SGE, c.Batch), wcs: make([]cverbs.WC, pollBatch),
	}
	if c.Connect != result.Exchange {
		addr, err := netip.ParseAddr(chosen.Addr)
		if err != nil {
			return nil, fmt.Errorf("%s has no IP address, which the connection manager needs; use --connect exchange",
				chosen.Name)
		}
		l.addr = addr
	}
	l.over = cverbs.PathOptions{TOS: c.TOS.Byte(), SL: c.SL.Byte(), AckTimeout: c.Timeout.Byte(), MTU: c.MTU.Or(0)}
	l.over.GIDIndex = chosen.gid.Byte()
	if err := l.open(chosen); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *cverbsLink) open(chosen choice) (err error) {
	c := l.c
	device, port := chosen.verbsPort()
	l.verbsPort = port
	ctx, err := cverbs.OpenDevice(device)
	if l.ctx, err = keep(l, ctx, err); err != nil {
		return err
	}
	if c.Connect != result.Exchange {
		ch, err := cverbs.CreateEventChannel()
		if l.ch, err = keep(l, ch, err); err != nil {
			return err
		}
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	l.retries = softroce.DefaultRetry(attr.VendorID)
	pd, err := ctx.AllocPD()
	if l.pd, err = keep(l, pd, err); err != nil {
		return err
	}
	comp, err := ctx.CreateCompChannel()
	if l.comp, err = keep(l, comp, err); err != nil {
		return err
	}
	depth := c.QPs * c.Depth
	recvs := 1
	if c.TwoSided() {
		recvs = c.RxDepth
		depth += c.QPs * c.RxDepth
		l.rwrs, l.rsges = make([]cverbs.RecvWR, c.RxDepth), make([]cverbs.SGE, c.RxDepth)
	}
	cq, err := ctx.CreateCQ(depth, comp, 0)
	if l.cq, err = keep(l, cq, err); err != nil {
		return fmt.Errorf("%d completions: %w", depth, err)
	}
	if c.HugePages {
		buf, free, err := hugeMemory(l.lay.total)
		if err != nil {
			return err
		}
		l.buf, l.opened = buf, append(l.opened, free)
	} else {
		l.buf = pageAligned(l.lay.total)
	}
	access := cverbs.AccessLocalWrite | cverbs.AccessRemoteRead | cverbs.AccessRemoteWrite
	if c.Atomic() {
		access |= cverbs.AccessRemoteAtomic
	}
	mr, err := pd.RegMR(l.buf, access)
	if l.mr, err = keep(l, mr, err); err != nil {
		return err
	}
	if c.SRQ {
		srq, err := pd.CreateSRQ(cverbs.SRQInit{MaxWR: uint32(c.RxDepth), MaxSGE: 1})
		if l.srq, err = keep(l, srq, err); err != nil {
			return err
		}
		l.byNum = make(map[uint32]int32, c.QPs)
	}
	all, err := cverbs.Devices()
	if err != nil {
		return err
	}
	for _, d := range all {
		l.iwarp = l.iwarp || d.Name == device && d.NodeType == cverbs.NodeRNIC
	}
	for i := range c.QPs {
		if err := l.openQP(port, recvs, access); err != nil {
			return fmt.Errorf("queue pair %d of %d: %w", i+1, c.QPs, err)
		}
	}
	l.inline = int(l.qps[0].Cap().MaxInline)
	if c.Inline >= 0 {
		l.inline = min(l.inline, c.Inline)
	}
	return nil
}

var qpTypes = map[string]cverbs.QPType{"": cverbs.QPTypeRC, result.UC: cverbs.QPTypeUC, result.UD: cverbs.QPTypeUD}

// datagramKey is the Q_Key of all datagrams.
const datagramKey = 0x11111111

// datagramPath is the destination of a UD queue pair's datagrams.
type datagramPath struct {
	ah  *cverbs.AH
	num uint32
}

// openQP creates a queue pair in INIT. It halves the inline size until the device accepts the queue
// pair.
func (l *cverbsLink) openQP(port uint8, recvs int, access cverbs.AccessFlags) error {
	init := cverbs.QPInit{
		Type: qpTypes[l.c.Transport], QKey: datagramKey, SendCQ: l.cq, RecvCQ: l.cq, SRQ: l.srq,
		Cap: cverbs.QPCap{
			MaxSendWR: uint32(l.c.Depth), MaxRecvWR: uint32(recvs), MaxSendSGE: 1, MaxRecvSGE: 1,
			MaxInline: cverbs.DefaultMaxInline,
		},
	}
	if l.c.Transport == result.UD {
		l.header = datagramHeader
	}
	qp, err := l.pd.CreateQP(init)
	for err != nil && init.Cap.MaxInline > 0 {
		init.Cap.MaxInline /= 2
		qp, err = l.pd.CreateQP(init)
	}
	if qp, err = keep(l, qp, err); err != nil {
		return err
	}
	if l.byNum != nil {
		l.byNum[qp.Num()] = int32(len(l.qps))
	}
	l.qps = append(l.qps, qp)
	return qp.ToInit(port, access)
}

// pageAligned returns zeroed, page-aligned memory.
func pageAligned(n int) []byte {
	page := os.Getpagesize()
	b := make([]byte, n+2*page)
	skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (page - 1)
	return b[skip : skip+(n+page-1)&^(page-1)]
}

func (l *cverbsLink) memory() remote { return remote{Addr: l.mr.Addr(), Key: l.mr.RKey()} }
func (l *cverbsLink) bytes() []byte  { return l.buf }

func (l *cverbsLink) path() *result.Path {
	attr, err := l.qps[0].Query()
	if err != nil || l.iwarp || l.c.Transport == result.UD {
		return nil
	}
	p := result.Path(attr.Path())
	return &p
}

func (l *cverbsLink) setRemote(r remote) {
	l.peer = r
	test, size := l.c.Test, l.c.Size
	l.opcode, l.flags, l.local, l.target = cverbsOps[test], 0, *l.lay.local(test), *l.lay.remote(test)
	if size <= l.inline && test != result.Read && !result.Atomic(test) {
		l.flags = cverbs.SendInline
	}
	for i := range l.wrs {
		l.wrs[i] = cverbs.SendWR{Opcode: l.opcode, FirstSGE: uint32(i), NumSGE: 1, RKey: l.peer.Key, CompareAdd: 1}
		l.sges[i] = cverbs.SGE{Length: uint32(size), LKey: l.mr.LKey()}
	}
}

func (l *cverbsLink) request(qp int, seq uint64, n int, flush bool) error {
	for i := range n {
		s := seq + uint64(i)
		w := &l.wrs[i]
		count, signalled := l.next(qp, flush && i == n-1)
		w.ID, w.Flags = requestCookie(qp, count), l.flags
		if signalled {
			w.Flags |= cverbs.SendSignaled
		}
		l.sges[i].Addr = l.mr.Addr() + uint64(l.local.at(qp, s))
		if l.paths != nil {
			w.AH, w.RemoteQPN, w.RemoteQKey = l.paths[qp].ah.Handle(), l.paths[qp].num, datagramKey
		}
		if l.opcode == cverbs.OpSend {
			continue
		}
		w.Imm = uint32(s)
		w.RemoteAddr = l.peer.Addr + uint64(l.target.at(qp, s))
		if l.peers != nil {
			w.RemoteAddr, w.RKey = l.peers[qp].Addr, l.peers[qp].Key
		}
		if l.opcode == cverbs.OpAtomicCmpAndSwp {
			w.CompareAdd, w.Swap = s, s+1
		}
	}
	_, err := l.qps[qp].PostSend(l.wrs[:n], l.sges[:n])
	return err
}

func (l *cverbsLink) receive(qp int, slot uint64, n int) error {
	for i := range n {
		s := l.lay.rx.slot(slot + uint64(i))
		l.rwrs[i] = cverbs.RecvWR{ID: receiveCookie(qp, s), FirstSGE: uint32(i), NumSGE: 1}
		l.rsges[i] = cverbs.SGE{Addr: l.mr.Addr() + uint64(l.lay.rx.at(qp, s)), Length: uint32(l.lay.size + l.header),
			LKey: l.mr.LKey()}
	}
	var err error
	if l.srq != nil {
		_, err = l.srq.PostRecv(l.rwrs[:n], l.rsges[:n])
	} else {
		_, err = l.qps[qp].PostRecv(l.rwrs[:n], l.rsges[:n])
	}
	return err
}

func (l *cverbsLink) poll(out []done, polls int) (int, error) {
	n, err := l.cq.PollSpin(l.wcs[:len(out)], polls)
	if err != nil {
		return 0, err
	}
	for i := range n {
		if err := l.completion(&out[i], &l.wcs[i]); err != nil {
			return i, err
		}
	}
	return n, nil
}

// wait arms the queue, polls once more, and parks. The poll finds the completions that came before
// the queue was armed. They cause no event.
func (l *cverbsLink) wait(out []done, timeout time.Duration) (int, error) {
	if !l.armed {
		if err := l.cq.Arm(false); err != nil {
			return 0, err
		}
		l.armed = true
	}
	if n, err := l.poll(out, 1); n > 0 || err != nil {
		return n, err
	}
	switch _, err := l.comp.Wait(time.Now().Add(timeout)); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return 0, nil
	case err != nil:
		return 0, err
	}
	if l.cq.Fired() {
		l.armed = false
	}
	return l.poll(out, 1)
}

func (l *cverbsLink) completion(d *done, wc *cverbs.WC) error {
	d.fromCookie(wc.ID)
	if wc.Status != cverbs.WCSuccess {
		return fmt.Errorf("%s on queue pair %d: %v (vendor code %d)", l.c.Test, d.qp, wc.Status, wc.VendorErr)
	}
	if d.recv {
		d.n, d.imm = wc.ByteLen-uint32(l.header), wc.Imm
		if l.byNum != nil {
			d.qp = l.byNum[wc.QPNum]
		}
	}
	return nil
}
