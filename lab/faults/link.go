package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/godat/godat/udat"
)

type linkKind uint8

// Kinds of links, by how a payload travels.
const (
	bySend   linkKind = iota // in the message
	bySRQ                    // in the message, which a shared receive queue takes
	byWrite                  // RDMA write into the receiver's region, then a message
	byWindow                 // like byWrite, through a memory window
	byRead                   // a message, then the receiver's RDMA read
)

func (k linkKind) String() string { return [...]string{"send", "srq", "write", "window", "read"}[k] }

const (
	recvDepth = window + 8 // credits of the peer, its acks and its hello
	ctlSlots  = 4
	patience  = 60 * time.Second // the time limit of a wait for something that must happen
)

// link is one connection with messages in both directions. In each direction at most window
// messages are in flight. The loop of the link's end owns the link.
type link struct {
	e      *end
	id     uint8
	kind   linkKind
	active bool // this end connects
	ep     *udat.EP
	rmr    *udat.RMR

	out, in, recv, ctl *memory // payloads to send; payloads written or read; receives; hellos and acks
	requests, receives *ledger

	up, greeted bool // ESTABLISHED was dequeued; the peer's hello has come
	quiet       bool // the link posts nothing more
	failed      bool // a failed completion without a cause has been reported
	grant       udat.RMRTriplet
	heads       [window]header // headers of the reads in flight

	sent, completed, acked uint64 // data messages to the peer
	received, ackSent      uint64 // data messages from the peer
	ctlNext                int
	ctlInFlight            int

	ended   udat.EventNumber // the event of the connection's end; 0: not yet
	endedAt time.Time
}

func (l *link) name() string { return fmt.Sprintf("%s link %d (%v)", l.e.name, l.id, l.kind) }

func (l *link) problem(format string, args ...any) {
	l.e.problem("%s: %s", l.name(), fmt.Sprintf(format, args...))
}

// make creates the link's objects and posts its receives.
func (l *link) make() error {
	e := l.e
	var err error
	for _, m := range []struct {
		to   **memory
		name string
		size int
		priv udat.MemPriv
	}{
		{&l.out, "out", window * fullSize, udat.PrivLocalRead | udat.PrivRemoteRead},
		{&l.in, "in", window * slotSize, udat.PrivLocalRead | udat.PrivLocalWrite | udat.PrivRemoteWrite},
		{&l.recv, "recv", recvDepth * fullSize, udat.PrivLocalRead | udat.PrivLocalWrite},
		{&l.ctl, "ctl", ctlSlots * headSize, udat.PrivLocalRead},
	} {
		if *m.to, err = newMemory(e.ia, e.pz, l.name()+" "+m.name, m.size, m.priv); err != nil {
			return err
		}
	}
	attr := &udat.EPAttr{MaxRequestDTOs: 4*window + ctlSlots, MaxRecvDTOs: recvDepth}
	if l.kind == byRead { // soft-iWARP cannot have more reads in flight in both directions
		attr.MaxRDMAReadIn, attr.MaxRDMAReadOut = window, window
	}
	l.requests = newLedger(l.name()+" requests", true)
	l.requests.iwarp = e.iwarp
	if l.kind == bySRQ {
		l.receives = e.srqLedger
		attr.MaxRecvDTOs = 0
		l.ep, err = e.ia.CreateEPWithSRQ(e.pz, e.evd, e.evd, e.evd, e.srq, attr)
		return err
	}
	l.receives = newLedger(l.name()+" receives", true)
	if l.ep, err = e.ia.CreateEP(e.pz, e.evd, e.evd, e.evd, attr); err != nil {
		return err
	}
	for slot := range uint64(recvDepth) {
		if err := l.postRecv(slot); err != nil {
			return err
		}
	}
	if l.kind == byWindow {
		l.rmr, err = e.pz.CreateRMR()
	}
	return err
}

// postRecv posts the receive of a slot. At this time each byte of the slot is emptyByte.
func (l *link) postRecv(slot uint64) error {
	if l.kind == bySRQ {
		return l.e.postSRQ(slot)
	}
	cookie := l.cookie(receiveQueue, l.receives.add(post{op: udat.DTOReceive, seq: slot}))
	err := l.ep.PostRecv(l.recv.iov(int(slot)*fullSize, fullSize), cookie, udat.CompletionDefault)
	if err != nil {
		l.receives.undo()
	}
	return err
}

// established begins the traffic. The connecting end sends the first message, as iWARP requires.
func (l *link) established() {
	if l.up || l.ended != 0 {
		l.problem("ESTABLISHED comes twice or after the end")
	}
	l.up = true
	if l.active {
		l.hello()
	}
}

// hello sends the message that grants memory to the peer.
func (l *link) hello() {
	grant := l.in.lmr.RMRTriplet(0, len(l.in.buf))
	switch l.kind {
	case byRead:
		grant = l.out.lmr.RMRTriplet(0, len(l.out.buf))
	case byWindow:
		serial := l.requests.add(post{op: udat.DTOBind})
		_, err := l.rmr.Bind(l.in.lmr.Triplet(0, len(l.in.buf)), udat.PrivRemoteWrite, l.ep, l.cookie(requestQueue, serial),
			udat.CompletionDefault)
		if !l.posted(err) {
			return
		}
		grant = l.rmr.RMRTriplet()
	}
	l.control(header{kind: hello, context: grant.RMRContext, address: grant.TargetAddress, size: grant.SegmentLength})
}

// control sends a message without payload.
func (l *link) control(h header) {
	h.link = l.id
	off := l.ctlNext * headSize
	l.ctlNext = (l.ctlNext + 1) % ctlSlots
	h.put(l.ctl.buf[off : off+headSize])
	serial := l.requests.add(post{op: udat.DTOSend, kind: h.kind})
	err := l.ep.PostSend(l.ctl.iov(off, headSize), l.cookie(requestQueue, serial), udat.CompletionDefault)
	if l.posted(err) {
		l.ctlInFlight++
	}
}

// posted handles the result of the latest post of a request, and reports whether the post was
// accepted. A refusal is right only if the connection ends.
func (l *link) posted(err error) bool {
	if err == nil {
		return true
	}
	l.requests.undo()
	if !l.quiet && !(errors.Is(err, udat.ErrInvalidState) && l.e.mayEnd.Load()) && !l.e.dead.Load() {
		l.problem("a post is refused: %v", err)
	}
	l.quiet = true
	return false
}

// pump posts what the credits permit.
func (l *link) pump() {
	if !l.up || !l.greeted || l.ended != 0 {
		return
	}
	quiet := func() bool { return l.quiet || l.e.quiet.Load() }
	if !quiet() && l.received-l.ackSent >= window/2 && l.ctlInFlight < ctlSlots {
		l.ackSent = l.received
		l.control(header{kind: ack, seq: l.received})
	}
	for !quiet() && l.sent-min(l.acked, l.completed) < window {
		l.sendData()
	}
}

// shortRead is the largest length of a read's answer that breaks a connection of soft-iWARP: the
// driver's thread copies such answers as if it ran in the program's process.
const shortRead = 32

func (l *link) payloadLength(seq uint64) int {
	n := payloadLength(seq)
	if l.kind == byRead && l.e.iwarp {
		return max(n, shortRead+1)
	}
	return n
}

func (l *link) sendData() {
	seq := l.sent
	slot := int(seq % window)
	n := l.payloadLength(seq)
	head, payload := slot*fullSize, slot*fullSize+headSize
	body := l.out.buf[payload : payload+n]
	fill(body, l.id, seq)
	h := header{kind: data, link: l.id, seq: seq, length: uint32(n), sum: sum(body)}
	h.put(l.out.buf[head : head+headSize])
	l.e.counts.set(l.id, countSent, seq+1) // before the post: a killed process has sent no more than this
	iov := l.out.iov(head, headSize)
	switch l.kind {
	case bySend, bySRQ:
		iov = append(iov, l.out.lmr.Triplet(payload, n))
	case byWrite, byWindow:
		remote := l.grant
		remote.TargetAddress += uint64(slot * slotSize)
		remote.SegmentLength = uint64(n)
		serial := l.requests.add(post{op: udat.DTORDMAWrite})
		err := l.ep.PostRDMAWrite(l.out.iov(payload, n), l.cookie(requestQueue, serial), remote, udat.CompletionDefault)
		if !l.posted(err) {
			return
		}
	}
	serial := l.requests.add(post{op: udat.DTOSend, kind: data, seq: seq, last: true})
	if l.posted(l.ep.PostSend(iov, l.cookie(requestQueue, serial), udat.CompletionDefault)) {
		l.sent++
	}
}

// requested handles the completion of a request.
func (l *link) requested(serial uint64, ev *udat.Event) {
	p, err := l.requests.complete(serial, ev.Status)
	if err != nil {
		l.problem("%v", err)
		return
	}
	l.settled(ev)
	if p.kind == hello || p.kind == ack {
		l.ctlInFlight--
	}
	if ev.Status != udat.DTOSuccess {
		l.quiet = true
		return
	}
	switch {
	case ev.Number == udat.EventDTOCompletion && ev.Operation != p.op:
		l.problem("post %d was %v, its completion says %v", serial, p.op, ev.Operation)
	case p.last:
		l.completed = p.seq + 1
		l.e.counts.set(l.id, countCompleted, l.completed)
	case p.op == udat.DTORDMARead:
		slot := int(p.seq % window)
		l.take(l.heads[slot], l.in.buf[slot*slotSize:(slot+1)*slotSize])
	}
}

// settled checks a completion's status against the state of the connection.
func (l *link) settled(ev *udat.Event) {
	switch {
	case ev.Status == udat.DTOSuccess && l.ended != 0:
		l.problem("cookie %#x succeeds after %v", ev.Cookie, l.ended)
	case ev.Status != udat.DTOSuccess && !l.e.mayEnd.Load() && !l.failed:
		l.failed = true
		l.problem("%v ends with %v (raw %d)", ev.Operation, ev.Status, ev.RawStatus)
	}
}

// message handles the completion of a receive. b is the memory of its slot.
func (l *link) message(ev *udat.Event, b []byte) {
	l.settled(ev)
	if ev.Status != udat.DTOSuccess {
		l.quiet = true
		return
	}
	n := int(ev.Length)
	if n > len(b) {
		l.problem("a message of %d bytes in a receive of %d", n, len(b))
		return
	}
	if i := changed(b[n:], emptyByte); i >= 0 {
		l.problem("byte %d behind a message of %d bytes has changed", i, n)
	}
	h, err := parseHeader(b[:n])
	switch {
	case err != nil:
		l.problem("%v", err)
	case !l.up:
		l.problem("a message before ESTABLISHED")
	case h.link != l.id:
		l.problem("a message of link %d", h.link)
	case h.kind == hello && !l.greeted:
		l.greeted = true
		l.grant = udat.RMRTriplet{RMRContext: h.context, TargetAddress: h.address, SegmentLength: h.size}
		if !l.active {
			l.hello()
		}
	case h.kind == ack && h.seq > l.acked && h.seq <= l.sent:
		l.acked = h.seq
	case h.kind == data && l.greeted:
		l.data(h, b[headSize:n])
	default:
		l.problem("message kind %d, number %d, cannot come now: %d sent, %d acknowledged", h.kind, h.seq, l.sent, l.acked)
	}
	set(b, emptyByte)
}

// data handles a data message. The parameter body is the payload, if the message contains it.
func (l *link) data(h header, body []byte) {
	slot := int(h.seq % window)
	switch l.kind {
	case bySend, bySRQ:
		l.take(h, body)
	case byWrite, byWindow:
		l.take(h, l.in.buf[slot*slotSize:(slot+1)*slotSize])
	case byRead:
		l.heads[slot] = h
		remote := l.grant
		remote.TargetAddress += uint64(slot*fullSize + headSize)
		remote.SegmentLength = uint64(h.length)
		serial := l.requests.add(post{op: udat.DTORDMARead, seq: h.seq})
		l.posted(l.ep.PostRDMARead(l.in.iov(slot*slotSize, int(h.length)), l.cookie(requestQueue, serial), remote,
			udat.CompletionDefault))
	}
}

// take checks a payload: its number, its bytes, and the empty bytes after it.
func (l *link) take(h header, b []byte) {
	n := int(h.length)
	switch {
	case h.seq != l.received:
		l.problem("payload %d comes instead of %d", h.seq, l.received)
	case n != l.payloadLength(h.seq) || n > len(b):
		l.problem("payload %d has %d bytes, must have %d", h.seq, n, l.payloadLength(h.seq))
		return
	case sum(b[:n]) != h.sum:
		l.problem("payload %d has changed on its way", h.seq)
	}
	if i := changed(b[n:], emptyByte); i >= 0 {
		l.problem("byte %d behind payload %d has changed", i, h.seq)
	}
	set(b[:n], emptyByte)
	l.received = h.seq + 1
	l.e.counts.set(l.id, countReceived, l.received)
}

// end handles the event that ends the connection.
func (l *link) end(number udat.EventNumber) {
	if l.ended != 0 {
		l.problem("%v comes after %v", number, l.ended)
		return
	}
	l.ended, l.endedAt, l.quiet = number, time.Now(), true
	if state, _, _, err := l.ep.GetStatus(); err != nil || state != udat.EPDisconnected {
		l.problem("after %v the endpoint is %v (%v)", number, state, err)
	}
	if !l.e.mayEnd.Load() {
		l.problem("%v without a cause", number)
	}
}

// free frees the link's objects; each free must succeed.
func (l *link) free() {
	if l.ep != nil {
		l.e.must("EP.Free", l.ep.Free())
	}
	if l.rmr != nil {
		l.e.must("RMR.Free", l.rmr.Free())
	}
	for _, m := range []*memory{l.out, l.in, l.recv, l.ctl} {
		l.e.freeMemory(m)
	}
}
