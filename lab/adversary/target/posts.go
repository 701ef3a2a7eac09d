//go:build linux

package main

import (
	"bytes"
	"errors"

	"github.com/godat/godat/lab/adversary/pattern"
	"github.com/godat/godat/udat"
)

// take takes a free slot of a kind, or returns false.
func (s *session) take(kind int) (int, bool) {
	n := len(s.free[kind])
	if n == 0 {
		return 0, false
	}
	i := s.rnd.IntN(n)
	at := s.free[kind][i]
	s.free[kind][i] = s.free[kind][n-1]
	s.free[kind] = s.free[kind][:n-1]
	return at, true
}

func (s *session) give(kind, at int) { s.free[kind] = append(s.free[kind], at) }

func (s *session) postRecv() {
	at, ok := s.take(ofReceives)
	if !ok {
		return
	}
	mem, _ := slot(&s.arena.receives, at, recvSize)
	s.arena.wipe(mem)
	size := recvSize
	if s.rnd.IntN(8) == 0 {
		size = s.rnd.IntN(recvSize)
	}
	iov := []udat.LMRTriplet{s.arena.receives.lmr.Triplet(at*(recvSize+guardSize), size)}
	if s.rnd.IntN(4) == 0 && size > 1 { // two pieces
		cut := 1 + s.rnd.IntN(size-1)
		iov = []udat.LMRTriplet{s.arena.receives.lmr.Triplet(at*(recvSize+guardSize), cut),
			s.arena.receives.lmr.Triplet(at*(recvSize+guardSize)+cut, size-cut)}
		if s.srq != nil {
			iov, size = iov[:1], cut
		}
	}
	s.cookie++
	var err error
	if s.srq != nil {
		err = s.srq.PostRecv(iov, s.cookie)
	} else {
		err = s.ep.PostRecv(iov, s.cookie, 0)
	}
	s.posted(err, ofReceives, post{kind: udat.DTOReceive, slot: at, size: size})
}

// posted records a post, unless it was refused.
func (s *session) posted(err error, kind int, p post) {
	if err != nil {
		s.give(kind, p.slot)
		if !errors.Is(err, udat.ErrInsufficientResources) && !errors.Is(err, udat.ErrInvalidState) &&
			!errors.Is(err, udat.ErrModelNotSupported) {
			s.bad("post of %v: %v", p.kind, err)
		}
		return
	}
	s.r.Posted++
	s.posts[s.cookie] = p
}

// postRequest posts a request of a random kind.
func (s *session) postRequest() {
	n := s.rnd.IntN(s.largest + 1)
	if s.rnd.IntN(s.smallOf) == 0 {
		n = s.rnd.IntN(min(s.largest, 200) + 1)
	}
	flags := udat.CompletionDefault
	p := post{size: n}
	if s.rnd.IntN(10) == 0 {
		flags, p.silent = udat.CompletionSuppress, true
	}
	if s.rnd.IntN(10) == 0 {
		flags |= udat.CompletionBarrierFence
	}
	if s.rnd.IntN(20) < s.sinkBias {
		s.postSink(p, flags)
		return
	}
	s.postSource(p, flags)
}

// postSource posts a request that sends memory.
func (s *session) postSource(p post, flags udat.CompletionFlags) {
	at, ok := s.take(ofSources)
	if !ok {
		return
	}
	s.number++
	p.slot, p.number = at, s.number&(1<<31-1)
	region := &s.arena.sources
	from := at * (slotSize + guardSize)
	if s.rnd.IntN(6) == 0 {
		p.sealed, p.number, p.size = true, sealedNumber, min(p.size, sealedSize)
		region, from = &s.arena.sealed, 0
	} else {
		mem, _ := slot(region, at, slotSize)
		pattern.Put(mem[:p.size], p.number)
	}
	iov := []udat.LMRTriplet{region.lmr.Triplet(from, p.size)}
	if s.rnd.IntN(5) == 0 && p.size > 1 {
		cut := 1 + s.rnd.IntN(p.size-1)
		iov = []udat.LMRTriplet{region.lmr.Triplet(from, cut), region.lmr.Triplet(from+cut, p.size-cut)}
	}
	remote := udat.RMRTriplet{RMRContext: 9, TargetAddress: p.number << 32, SegmentLength: uint64(p.size)}
	s.cookie++
	var err error
	switch s.rnd.IntN(12) {
	case 0, 1, 2, 3:
		p.kind = udat.DTOSend
		if s.rnd.IntN(4) == 0 {
			flags |= udat.CompletionSolicitedWait
		}
		err = s.ep.PostSend(iov, s.cookie, flags)
	case 4:
		p.kind = udat.DTOSend
		err = s.ep.PostSendImmediate(iov, s.cookie, uint32(p.number), flags)
	case 5:
		p.kind = udat.DTOSend
		err = s.ep.PostSendWithInvalidate(iov, s.cookie, 9, flags)
	case 6, 7:
		p.kind = udat.DTORDMAWriteImm
		err = s.ep.PostRDMAWriteImmediate(iov, s.cookie, remote, uint32(p.number), flags)
	default:
		p.kind = udat.DTORDMAWrite
		err = s.ep.PostRDMAWrite(iov, s.cookie, remote, flags)
	}
	s.posted(err, ofSources, p)
}

// postSink posts a request whose answer goes to memory.
func (s *session) postSink(p post, flags udat.CompletionFlags) {
	at, ok := s.take(ofSinks)
	if !ok {
		return
	}
	p.slot = at
	mem, _ := slot(&s.arena.sinks, at, slotSize)
	s.arena.wipe(mem)
	from := at * (slotSize + guardSize)
	remote := udat.RMRTriplet{RMRContext: 7, TargetAddress: 1 << 40, SegmentLength: uint64(p.size)}
	s.cookie++
	var err error
	switch s.rnd.IntN(6) {
	case 0:
		p.kind, p.size, remote.SegmentLength = udat.DTOFetchAdd, 8, 8
		err = s.ep.PostFetchAdd(1, s.arena.sinks.lmr.Triplet(from, 8), s.cookie, remote, flags)
	case 1:
		p.kind, p.size, remote.SegmentLength = udat.DTOCmpSwap, 8, 8
		err = s.ep.PostCmpSwap(1, 2, s.arena.sinks.lmr.Triplet(from, 8), s.cookie, remote, flags)
	default:
		p.kind = udat.DTORDMARead
		err = s.ep.PostRDMARead([]udat.LMRTriplet{s.arena.sinks.lmr.Triplet(from, p.size)}, s.cookie, remote, flags)
	}
	s.posted(err, ofSinks, p)
}

// bind opens a window on the middle of the region of that name.
func (s *session) bind() {
	rmr, err := s.arena.pz.CreateRMR()
	if err != nil {
		s.bad("PZ.CreateRMR: %v", err)
		return
	}
	s.rmr = rmr
	s.cookie++
	_, err = rmr.Bind(s.arena.window.lmr.Triplet(windowAt, windowLen), udat.PrivRemoteWrite, s.ep, s.cookie, 0)
	if err == nil {
		s.posts[s.cookie] = post{kind: udat.DTOBind}
		s.r.Posted++
	}
}

// completion checks a completion against its post.
func (s *session) completion(ev *udat.Event) {
	p, known := s.posts[ev.Cookie]
	if !known {
		s.bad("a second completion, or one without a post: %v, %v", ev.Operation, ev.Status)
		return
	}
	delete(s.posts, ev.Cookie)
	ok := ev.Status == udat.DTOSuccess
	if ok {
		s.r.Done++
	} else {
		s.r.Failed++
	}
	if p.silent && ok {
		s.bad("a completion of %v that was to be suppressed", p.kind)
	}
	if p.kind != udat.DTOReceive {
		s.before(ev.Cookie)
	}
	s.done(ev, p, ok)
}

// before ends the requests without a completion that were posted before the request c: requests
// are done in their order.
func (s *session) before(c udat.Cookie) {
	for earlier, p := range s.posts {
		if p.silent && earlier < c {
			delete(s.posts, earlier)
			s.done(nil, p, true)
		}
	}
}

// done checks the memory of a post that is done, and takes its slot back.
func (s *session) done(ev *udat.Event, p post, ok bool) {
	switch p.kind {
	case udat.DTOBind:
	case udat.DTOReceive:
		s.received(ev, p, ok)
	case udat.DTORDMARead, udat.DTOFetchAdd, udat.DTOCmpSwap:
		s.answered(p, ok)
	default:
		s.sent(p)
	}
}

func (s *session) received(ev *udat.Event, p post, ok bool) {
	mem, guard := slot(&s.arena.receives, p.slot, recvSize)
	n := int(ev.Length)
	if ok && ev.Operation == udat.DTOReceiveWriteImm {
		n = 0
	}
	switch {
	case ok && n > p.size:
		s.bad("a receive of %d bytes has %d", p.size, n)
	case ok && bytes.IndexByte(mem[:n], pattern.Secret) >= 0:
		s.unfilled("a receive of %d bytes was not filled", n)
	case ok && !s.arena.isSecret(mem[n:]), !ok && !s.arena.isSecret(mem[p.size:]):
		last := len(mem)
		for last > 0 && mem[last-1] == pattern.Secret {
			last--
		}
		s.bad("memory behind a receive of %d bytes with %d bytes was written, up to %d (%v)", p.size, n, last, ev.Operation)
	case !s.arena.isSecret(guard):
		s.bad("the guard behind a receive of %d bytes was written", p.size)
	}
	s.give(ofReceives, p.slot)
}

func (s *session) answered(p post, ok bool) {
	mem, guard := slot(&s.arena.sinks, p.slot, slotSize)
	switch {
	case ok && p.kind == udat.DTORDMARead && bytes.IndexByte(mem[:p.size], pattern.Secret) >= 0:
		s.unfilled("the memory of a read of %d bytes that is done was not filled", p.size)
	case !s.arena.isSecret(mem[p.size:]):
		s.bad("memory behind the %d bytes of a read was written", p.size)
	case !s.arena.isSecret(guard):
		s.bad("the guard behind a read was written")
	}
	s.give(ofSinks, p.slot)
}

func (s *session) sent(p post) {
	if p.sealed {
		s.give(ofSources, p.slot)
		return
	}
	mem, guard := slot(&s.arena.sources, p.slot, slotSize)
	if n, ok := pattern.Number(mem[:p.size]); ok && n != p.number {
		s.bad("the memory of a %v of %d bytes was written", p.kind, p.size)
	} else if i := pattern.Wrong(mem[:p.size], p.number, 0); i >= 0 {
		s.bad("byte %d of the memory of a %v of %d bytes was written: %02x", i, p.kind, p.size, mem[i])
	}
	if !s.arena.isSecret(guard) {
		s.bad("the guard behind a %v was written", p.kind)
	}
	s.give(ofSources, p.slot)
}
