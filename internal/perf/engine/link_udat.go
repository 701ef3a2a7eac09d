package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/udat"
)

// udatLink is a link over package udat, with one dispatcher for all completions and one for all
// connection events.
type udatLink struct {
	c     *result.Case
	lay   layout
	ia    *udat.IA
	lmr   *udat.LMR
	huge  []byte // memory of lmr in huge pages; nil: AllocLMR allocated the memory
	unmap func() error
	dto   *udat.EVD
	conn  *udat.EVD
	srq   *udat.SRQ
	psp   *udat.PSP
	eps   []*udat.EP
	byEP  map[*udat.EP]int32 // index in eps; only with an SRQ, whose cookies do not identify the queue pair
	peer  remote
	signals

	kind   udat.OpKind // operation of all requests
	base   uint64      // address of the memory
	local  area
	target area
	ops    []udat.Op // setRemote fills in the fields that are the same for all requests
	iovs   [][1]udat.LMRTriplet
	recvs  []udat.Recv
	rxIOVs [][1]udat.LMRTriplet
	events []udat.Event
	empty  error // the error that an empty dispatcher returned last
}

var udatOps = map[string]udat.OpKind{
	result.Send: udat.OpSend, result.SendImm: udat.OpSendImmediate, result.Write: udat.OpRDMAWrite,
	result.WriteImm: udat.OpRDMAWriteImmediate, result.Read: udat.OpRDMARead,
	result.FetchAdd: udat.OpFetchAdd, result.CmpSwap: udat.OpCmpSwap,
}

func openUDAT(c *result.Case, lay layout, chosen choice) (_ *udatLink, err error) {
	spin := time.Duration(0) // the case determines how to wait
	if c.Poll == result.Adaptive {
		spin = adaptiveSpin
	}
	opts := append(knobs(c, chosen.gid), udat.WithSpin(spin), udat.WithLogger(slog.Default()))
	if chosen.tls != nil {
		opts = append(opts, udat.WithTLS(chosen.tls))
	}
	ia, err := udat.Open(chosen.open, opts...)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			ia.Close(udat.CloseAbrupt)
		}
	}()
	l := &udatLink{
		c: c, lay: lay, ia: ia, signals: newSignals(c),
		ops: make([]udat.Op, c.Batch), events: make([]udat.Event, pollBatch), eps: make([]*udat.EP, c.QPs),
	}
	pz, err := ia.CreatePZ()
	if err != nil {
		return nil, err
	}
	priv := udat.PrivAll
	if c.Atomic() {
		priv |= udat.PrivRemoteAtomic
	}
	if c.HugePages {
		if l.huge, l.unmap, err = hugeMemory(lay.total); err != nil {
			return nil, err
		}
		l.lmr, err = ia.CreateLMR(pz, l.huge, priv)
	} else {
		l.lmr, err = ia.AllocLMR(pz, lay.total, priv)
	}
	if err != nil {
		return nil, err
	}
	recvs := 1 // the minimum of an endpoint
	if c.TwoSided() {
		recvs = c.RxDepth
	}
	queued := c.QPs * (c.Depth + recvs)
	// The queue has twice as many entries as there are requests and receives, because udat reserves
	// spare entries for its endpoints, and soft-iWARP cannot resize a completion queue.
	if l.dto, err = ia.CreateEVD(2*queued, udat.EVDDTO, nil); err != nil {
		return nil, err
	}
	if l.conn, err = ia.CreateEVD(4*c.QPs+16, udat.EVDConnection|udat.EVDCR, nil); err != nil {
		return nil, err
	}
	attr := &udat.EPAttr{
		MaxRequestDTOs: c.Depth, MaxRecvDTOs: recvs, MaxRequestIOV: 1, MaxRecvIOV: 1,
		MaxRDMAReadIn: c.ReadDepth, MaxRDMAReadOut: c.ReadDepth,
	}
	if c.TwoSided() {
		l.recvs = make([]udat.Recv, c.RxDepth)
	}
	l.iovs, l.rxIOVs = make([][1]udat.LMRTriplet, c.Batch), make([][1]udat.LMRTriplet, len(l.recvs))
	if c.SRQ {
		attr.MaxRecvDTOs = 0
		l.byEP = make(map[*udat.EP]int32, c.QPs)
		if l.srq, err = ia.CreateSRQ(pz, udat.SRQAttr{MaxRecvDTOs: c.RxDepth, MaxRecvIOV: 1}); err != nil {
			return nil, err
		}
	}
	for i := range l.eps {
		if c.SRQ {
			l.eps[i], err = ia.CreateEPWithSRQ(pz, l.dto, l.dto, l.conn, l.srq, attr)
		} else {
			l.eps[i], err = ia.CreateEP(pz, l.dto, l.dto, l.conn, attr)
		}
		if err != nil {
			return nil, fmt.Errorf("endpoint %d of %d: %w", i+1, c.QPs, err)
		}
		if c.SRQ {
			l.byEP[l.eps[i]] = int32(i)
		}
	}
	return l, nil
}

func (l *udatLink) memory() remote {
	t := l.lmr.RMRTriplet(0, l.lay.total)
	return remote{Addr: t.TargetAddress, Key: t.RMRContext}
}

func (l *udatLink) bytes() []byte {
	if l.huge != nil {
		return l.huge
	}
	return l.lmr.Bytes()
}

func (l *udatLink) path() *result.Path {
	path, err := l.eps[0].Path()
	if err != nil || path.MTU == 0 { // iWARP
		return nil
	}
	p := result.Path(path)
	return &p
}

// knobs returns the options that set the case's knobs and the GID index.
func knobs(c *result.Case, gid result.Knob) (opts []udat.Option) {
	path := udat.PathOptions{TOS: c.TOS.Ptr(), ServiceLevel: c.SL.Ptr(), MTU: c.MTU.Ptr(), AckTimeout: c.Timeout.Ptr(),
		GIDIndex: gid.Ptr()}
	opts = append(opts, udat.WithPath(path))
	if n, ok := c.Retry.Get(); ok {
		opts = append(opts, udat.WithRetry(n))
	}
	if n, ok := c.RNR.Get(); ok {
		opts = append(opts, udat.WithRNRRetry(n))
	}
	return opts
}

func (l *udatLink) close() error {
	err := l.ia.Close(udat.CloseAbrupt)
	if l.unmap != nil && err == nil { // if Close failed, the device may still write to the memory
		err = l.unmap()
	}
	return err
}

func (l *udatLink) listen() (netip.AddrPort, error) {
	qual, psp, err := l.ia.CreatePSPAny(l.conn, udat.PSPConsumer)
	if err != nil {
		return netip.AddrPort{}, err
	}
	l.psp = psp
	return netip.AddrPortFrom(l.ia.Addr(), uint16(qual)), nil
}

// event waits for the next connection event.
func (l *udatLink) event(ctx context.Context) (udat.Event, error) {
	ev, _, err := l.conn.WaitContext(ctx, 1)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return ev, err
}

func (l *udatLink) accept(ctx context.Context, token uint64) error {
	defer l.psp.Free()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for {
			ev, _, err := l.ia.AsyncEVD().WaitContext(ctx, 1)
			if err == nil {
				err = ev.Err() // not nil if the service point has no file for a connection
			}
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	for up := 0; up < len(l.eps); {
		ev, err := l.event(ctx)
		if err != nil {
			return fmt.Errorf("waiting for the client's connections, %d of %d are there: %w", up, len(l.eps), err)
		}
		switch ev.Number {
		case udat.EventConnectionEstablished:
			up++
		case udat.EventConnectionRequest:
			param, err := ev.CR.Query()
			if err != nil {
				return err
			}
			qp, err := parsePrivate(param.PrivateData, token, len(l.eps))
			if err != nil {
				ev.CR.Reject(nil)
				continue
			}
			if err := ev.CR.Accept(l.eps[qp], nil); err != nil {
				return fmt.Errorf("accepting connection %d: %w", qp, err)
			}
		default:
			return fmt.Errorf("accepting the client's connections: %v", ev.Number)
		}
	}
	return nil
}

func (l *udatLink) connect(ctx context.Context, to netip.AddrPort, token uint64) error {
	for qp, ep := range l.eps {
		err := ep.Connect(to.Addr(), udat.ConnQual(to.Port()), setupTime, makePrivate(token, qp), udat.QoSBestEffort,
			udat.ConnectDefault)
		if err != nil {
			return err
		}
		// The queue pairs connect one after another, because a listener with a full backlog refuses.
		ev, err := l.event(ctx)
		if err != nil {
			return fmt.Errorf("connection %d to %v: %w", qp, to, err)
		}
		if ev.Number != udat.EventConnectionEstablished {
			return fmt.Errorf("connection %d to %v: %v%s", qp, to, ev.Number, errorSuffix(&ev))
		}
	}
	return nil
}

// errorSuffix returns the error of an event as a suffix for a message, or "" if the event has no
// error.
func errorSuffix(ev *udat.Event) string {
	if err := ev.Err(); err != nil {
		return ": " + err.Error()
	}
	return ""
}

func makePrivate(token uint64, qp int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, token)
	return binary.LittleEndian.AppendUint32(b, uint32(qp))
}

// parsePrivate returns the index of the queue pair that a connection request is for. It returns
// errNotOurs if the private data has another token or an index that is out of range.
func parsePrivate(b []byte, token uint64, qps int) (int, error) {
	if len(b) < privateSize || binary.LittleEndian.Uint64(b) != token {
		return 0, errNotOurs
	}
	if qp := binary.LittleEndian.Uint32(b[8:]); qp < uint32(qps) {
		return int(qp), nil
	}
	return 0, errNotOurs
}

func (l *udatLink) setRemote(r remote) {
	l.peer, l.base = r, l.lmr.Triplet(0, 1).VirtualAddress
	test, size := l.c.Test, l.c.Size
	l.kind, l.local, l.target = udatOps[test], *l.lay.local(test), *l.lay.remote(test)
	for i := range l.ops {
		l.iovs[i][0] = l.lmr.Triplet(0, size)
		l.ops[i] = udat.Op{
			Kind: l.kind, IOV: l.iovs[i][:], CompareAdd: 1,
			Remote: udat.RMRTriplet{RMRContext: l.peer.Key, SegmentLength: uint64(size)},
		}
	}
}

func (l *udatLink) request(qp int, seq uint64, n int, flush bool) error {
	for i := range n {
		s := seq + uint64(i)
		o := &l.ops[i]
		count, signalled := l.next(qp, flush && i == n-1)
		o.Cookie, o.Flags = udat.Cookie(requestCookie(qp, count)), udat.CompletionSuppress
		if signalled {
			o.Flags = udat.CompletionDefault
		}
		o.IOV[0].VirtualAddress = l.base + uint64(l.local.at(qp, s))
		if l.kind == udat.OpSend {
			continue
		}
		o.Immediate = uint32(s)
		o.Remote.TargetAddress = l.peer.Addr + uint64(l.target.at(qp, s))
		if l.kind == udat.OpCmpSwap {
			o.CompareAdd, o.Swap = s, s+1
		}
	}
	if n == 1 {
		o, ep := &l.ops[0], l.eps[qp]
		switch l.kind {
		case udat.OpSend:
			return ep.PostSend(o.IOV, o.Cookie, o.Flags)
		case udat.OpRDMAWrite:
			return ep.PostRDMAWrite(o.IOV, o.Cookie, o.Remote, o.Flags)
		case udat.OpRDMARead:
			return ep.PostRDMARead(o.IOV, o.Cookie, o.Remote, o.Flags)
		}
	}
	_, err := l.eps[qp].PostBatch(l.ops[:n])
	return err
}

func (l *udatLink) receive(qp int, slot uint64, n int) error {
	for i := range n {
		s := l.lay.rx.slot(slot + uint64(i))
		l.rxIOVs[i][0] = l.lmr.Triplet(l.lay.rx.at(qp, s), l.lay.size)
		l.recvs[i] = udat.Recv{IOV: l.rxIOVs[i][:], Cookie: udat.Cookie(receiveCookie(qp, s))}
		if l.srq != nil {
			if err := l.srq.PostRecv(l.recvs[i].IOV, l.recvs[i].Cookie); err != nil {
				return err
			}
		}
	}
	if l.srq != nil {
		return nil
	}
	if n == 1 {
		return l.eps[qp].PostRecv(l.recvs[0].IOV, l.recvs[0].Cookie, udat.CompletionDefault)
	}
	_, err := l.eps[qp].PostRecvBatch(l.recvs[:n])
	return err
}

func (l *udatLink) poll(out []done, polls int) (int, error) {
	n, err := l.dto.DequeueSpin(l.events[:len(out)], polls)
	if n == 0 && err != nil {
		if err != l.empty { // errors.Is would take a large part of the time of a poll
			if !errors.Is(err, udat.ErrQueueEmpty) {
				return 0, err
			}
			l.empty = err
		}
		return 0, nil
	}
	for i := range n {
		if err := l.completion(&out[i], &l.events[i]); err != nil {
			return i, err
		}
	}
	return n, nil
}

func (l *udatLink) wait(out []done, timeout time.Duration) (int, error) {
	ev, more, err := l.dto.Wait(timeout, 1)
	if err != nil {
		if errors.Is(err, udat.ErrTimeoutExpired) {
			return 0, nil
		}
		return 0, err
	}
	if err = l.completion(&out[0], &ev); err != nil || more == 0 || len(out) == 1 {
		return 1, err
	}
	n, err := l.poll(out[1:], 1)
	return 1 + n, err
}

func (l *udatLink) completion(d *done, ev *udat.Event) error {
	d.fromCookie(uint64(ev.Cookie))
	if ev.Status != udat.DTOSuccess {
		return fmt.Errorf("%v on queue pair %d: %v (fabric status %d, vendor code %d)", ev.Operation, d.qp, ev.Status,
			ev.RawStatus, ev.VendorError)
	}
	if d.recv {
		d.n, d.imm = uint32(ev.Length), ev.Immediate
		if l.byEP != nil {
			d.qp = l.byEP[ev.EP]
		}
	}
	return nil
}
