package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/godat/godat/udat"
)

// The protocol of dapltest -T T, the transaction test. On a first connection the client sends two
// messages, who it is and what it wants, and the server answers with the first port of the test and
// disconnects. The test has a connection for each endpoint of each thread, on a port of its own. On
// each of them:
//
//  1. the client tells where its memory is, for each operation, and the server answers likewise;
//  2. the server sends a message (sync), the client answers;
//  3. in each iteration the end that initiates an operation sends, reads or writes, in the order of
//     the list; the other end of a send receives;
//  4. once more a message each way, and both disconnect.
//
// All numbers are little-endian; a message of the first connection has 8192 bytes.
const (
	daplPort    = udat.ConnQual(62000)
	daplMessage = 8192
	daplVersion = 6
	daplTest    = 1 // kinds of test
	daplQuit    = 4
	daplRMI     = 1200 // message with the places of 100 operations
	daplPlace   = 12
	daplSync    = 64
	daplMost    = 1 << 20 // bytes of an operation that this program serves
	daplPrivate = "DAPL and RDMA rule! Test 4321."
)

// Kinds of operations.
const (
	daplRead  = 0
	daplWrite = 1
	daplSend  = 2
)

// daplOp is one operation of the list.
type daplOp struct {
	server bool // initiates it
	kind   uint32
	size   int
}

// daplCommand is what the client wants.
type daplCommand struct {
	iterations, threads, endpoints int
	ops                            []daplOp
}

// The client of this program asks for it; the server does what its client asks for.
var daplWanted = daplCommand{iterations: 10, threads: 2, endpoints: 2, ops: []daplOp{
	{false, daplSend, 4096}, {true, daplSend, 1024}, {false, daplWrite, 4096}, {true, daplRead, 512}}}

// Offsets in the command.
const (
	atIterations = 264 + 4*iota
	atThreads
	atEndpoints
	atNumber = 564 // their number
	atOps    = 568
	opBytes  = 20
)

func (c *daplCommand) put(b []byte) {
	u32 := func(at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }
	u32(0, daplVersion)
	u32(4, 1) // little-endian
	u32(atIterations, uint32(c.iterations))
	u32(atThreads, uint32(c.threads))
	u32(atEndpoints, uint32(c.endpoints))
	u32(atNumber, uint32(len(c.ops)))
	for i, op := range c.ops {
		at := atOps + i*opBytes
		if op.server {
			u32(at, 1)
		}
		u32(at+4, op.kind)
		u32(at+8, 1) // segments
		u32(at+12, uint32(op.size))
	}
}

// parseCommand checks what a client asks for.
func parseCommand(b []byte) (c daplCommand, err error) {
	u32 := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	c = daplCommand{iterations: u32(atIterations), threads: u32(atThreads), endpoints: u32(atEndpoints)}
	n := u32(atNumber)
	if n > daplRMI/daplPlace || c.threads < 1 || c.endpoints < 1 || c.threads > 64 || c.endpoints > 64 {
		return c, fmt.Errorf("%d operations, %d threads, %d endpoints: too many or none", n, c.threads, c.endpoints)
	}
	for i := range n {
		at := atOps + i*opBytes
		op := daplOp{server: u32(at) != 0, kind: uint32(u32(at + 4)), size: u32(at+8) * u32(at+12)}
		if op.kind > daplSend || op.size < 0 || op.size > daplMost {
			return c, fmt.Errorf("operation %d: kind %d, %d bytes", i, op.kind, op.size)
		}
		c.ops = append(c.ops, op)
	}
	return c, nil
}

// Where things are in the memory of one connection; the operations follow.
const (
	daplPlaces = 0       // the peer's
	daplOut    = daplRMI // what this end sends in 1, 2 and 4
	daplSyncs  = 2 * daplRMI
	daplOps    = daplSyncs + daplSync
)

// memory is the number of bytes that one connection needs.
func (c *daplCommand) memory() int {
	n := daplOps
	for _, op := range c.ops {
		n += op.size
	}
	return n
}

// daplServer serves clients until one asks it to quit.
func daplServer(addr netip.Addr, _ int) error {
	e, err := newEnd(addr, 2*daplMessage, 1, 4)
	if err != nil {
		return err
	}
	defer e.close()
	requests, err := e.listen(daplPort)
	if err != nil {
		return err
	}
	fmt.Println("Service Point Ready")
	for first := daplPort + 1; ; {
		ep, err := e.newEP()
		if err != nil {
			return err
		}
		for i := range 2 {
			if err := ep.PostRecv(e.iov(i*daplMessage, daplMessage), 0, udat.CompletionDefault); err != nil {
				return err
			}
		}
		if err := e.accept(requests, ep); err != nil {
			return err
		}
		if err := e.established(1); err != nil {
			return err
		}
		for range 2 {
			if _, err := e.received(daplMessage); err != nil {
				return err
			}
		}
		kind := binary.LittleEndian.Uint32(e.bytes(8, 4))
		command, ended := daplCommand{}, make(chan error)
		switch kind {
		case daplTest:
			if command, err = parseCommand(e.bytes(daplMessage, daplMessage)); err != nil {
				return err
			}
			for i := range command.threads * command.endpoints {
				c, err := e.transaction(&command, first+udat.ConnQual(i))
				if err != nil {
					return err
				}
				go func() { ended <- c.serve() }()
			}
		case daplQuit:
		default:
			return fmt.Errorf("a test of kind %d", kind)
		}
		answer := e.bytes(0, 12)
		binary.LittleEndian.PutUint32(answer, daplVersion)
		binary.LittleEndian.PutUint32(answer[4:], 1)
		binary.LittleEndian.PutUint32(answer[8:], uint32(first))
		if err := e.done(ep.PostSend(e.iov(0, daplMessage), 0, udat.CompletionDefault)); err != nil {
			return err
		}
		if err := e.disconnect(ep); err != nil {
			return err
		}
		for range command.threads * command.endpoints {
			if err := <-ended; err != nil {
				return err
			}
		}
		if kind == daplQuit {
			return nil
		}
		if err := ep.Free(); err != nil {
			return err
		}
		first += udat.ConnQual(command.threads * command.endpoints)
	}
}

func daplClient(addr netip.Addr) error {
	e, err := newEnd(addr, 2*daplMessage, 1, 4)
	if err != nil {
		return err
	}
	defer e.close()
	ep, err := e.newEP()
	if err != nil {
		return err
	}
	if err := ep.PostRecv(e.iov(daplMessage, daplMessage), 0, udat.CompletionDefault); err != nil {
		return err
	}
	if err := connect(ep, addr, daplPort, nil); err != nil {
		return err
	}
	if err := e.established(1); err != nil {
		return err
	}
	who := e.bytes(0, 16)
	for i, v := range []uint32{daplVersion, 1, daplTest, uint32(daplWanted.threads)} {
		binary.LittleEndian.PutUint32(who[4*i:], v)
	}
	if err := e.done(ep.PostSend(e.iov(0, daplMessage), 0, udat.CompletionDefault)); err != nil {
		return err
	}
	clear(who)
	daplWanted.put(e.bytes(0, daplMessage))
	if err := e.done(ep.PostSend(e.iov(0, daplMessage), 0, udat.CompletionDefault)); err != nil {
		return err
	}
	if _, err := e.received(daplMessage); err != nil {
		return err
	}
	if version := binary.LittleEndian.Uint32(e.bytes(daplMessage, 4)); version != daplVersion {
		return fmt.Errorf("the server's version is %d, want %d", version, daplVersion)
	}
	first := udat.ConnQual(binary.LittleEndian.Uint32(e.bytes(daplMessage+8, 4)))
	if err := e.disconnected(1); err != nil {
		return err
	}
	n := daplWanted.threads * daplWanted.endpoints
	ended := make(chan error, n)
	for i := range n {
		c, err := e.transaction(&daplWanted, 0)
		if err != nil {
			return err
		}
		go func() { ended <- c.call(addr, first+udat.ConnQual(i)) }()
	}
	for range n {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// transaction is one connection of the test.
type transaction struct {
	*end
	*daplCommand
	ep      *udat.EP
	clients *udat.EVD         // of the server: requests of connections
	server  bool              // this end
	at      []int             // of each operation in this end's memory
	peer    []udat.RMRTriplet // of each operation, the peer's memory
}

// transaction makes the endpoint of a connection; it listens if port is not 0.
func (e *end) transaction(command *daplCommand, port udat.ConnQual) (*transaction, error) {
	own, err := e.sibling(command.memory(), 1, len(command.ops)+3)
	if err != nil {
		return nil, err
	}
	t := &transaction{end: own, daplCommand: command, server: port != 0}
	next := daplOps
	for _, op := range command.ops {
		t.at = append(t.at, next)
		next += op.size
	}
	if t.ep, err = t.newEP(); err != nil {
		return nil, err
	}
	if err = t.ep.PostRecv(t.iov(daplPlaces, daplRMI), 0, udat.CompletionDefault); err == nil {
		err = t.postSync()
	}
	if err == nil && t.server {
		t.clients, err = t.listen(port)
	}
	return t, err
}

func (t *transaction) postSync() error {
	return t.ep.PostRecv(t.iov(daplSyncs, daplSync), 0, udat.CompletionDefault)
}

func (t *transaction) send(size int) error {
	return t.done(t.ep.PostSend(t.iov(daplOut, size), 0, udat.CompletionDefault))
}

func (t *transaction) serve() error {
	ev, err := await(t.clients, udat.EventConnectionRequest)
	if err != nil {
		return err
	}
	p, err := ev.CR.Query()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(p.PrivateData, []byte(daplPrivate)) {
		return fmt.Errorf("private data %q", p.PrivateData)
	}
	if err := ev.CR.Accept(t.ep, nil); err != nil {
		return err
	}
	return t.run()
}

func (t *transaction) call(to netip.Addr, port udat.ConnQual) error {
	if err := connect(t.ep, to, port, []byte(daplPrivate)); err != nil {
		return err
	}
	return t.run()
}

func (t *transaction) run() error {
	if err := t.established(1); err != nil {
		return err
	}
	if err := t.exchange(); err != nil {
		return err
	}
	for i := range t.ops {
		if err := t.prepare(i); err != nil {
			return err
		}
	}
	if err := t.sync(); err != nil {
		return err
	}
	for iteration := range t.iterations {
		last := iteration == t.iterations-1
		if last { // its receive must be there before the peer has finished
			if err := t.postSync(); err != nil {
				return err
			}
		}
		for i := range t.ops {
			if err := t.do(i, last); err != nil {
				return fmt.Errorf("iteration %d, operation %d: %w", iteration, i, err)
			}
		}
	}
	if err := t.sync(); err != nil {
		return err
	}
	return t.disconnected(1)
}

// exchange tells the peer the places of the operations, and hears its own; the client begins.
func (t *transaction) exchange() error {
	places := t.bytes(daplOut, daplRMI)
	for i, op := range t.ops {
		if op.server != t.server && op.kind != daplSend {
			mine := t.mem.RMRTriplet(t.at[i], op.size)
			binary.LittleEndian.PutUint32(places[i*daplPlace:], mine.RMRContext)
			binary.LittleEndian.PutUint64(places[i*daplPlace+4:], mine.TargetAddress)
		}
	}
	if !t.server {
		if err := t.send(daplRMI); err != nil {
			return err
		}
	}
	if _, err := t.received(daplRMI); err != nil {
		return err
	}
	theirs := t.bytes(daplPlaces, daplRMI)
	for i, op := range t.ops {
		t.peer = append(t.peer, udat.RMRTriplet{RMRContext: binary.LittleEndian.Uint32(theirs[i*daplPlace:]),
			TargetAddress: binary.LittleEndian.Uint64(theirs[i*daplPlace+4:]), SegmentLength: uint64(op.size)})
	}
	if t.server {
		return t.send(daplRMI)
	}
	return nil
}

// sync waits until both ends are here; the server begins.
func (t *transaction) sync() error {
	if t.server {
		if err := t.send(daplSync); err != nil {
			return err
		}
	}
	if _, err := t.received(daplSync); err != nil {
		return err
	}
	if !t.server {
		return t.send(daplSync)
	}
	return nil
}

// prepare posts the receive of an operation that the peer sends.
func (t *transaction) prepare(i int) error {
	if op := t.ops[i]; op.server == t.server || op.kind != daplSend {
		return nil
	}
	return t.ep.PostRecv(t.iov(t.at[i], t.ops[i].size), 0, udat.CompletionDefault)
}

// do does an operation, or receives what the peer sends in it.
func (t *transaction) do(i int, last bool) error {
	op, iov := t.ops[i], t.iov(t.at[i], t.ops[i].size)
	switch {
	case op.server == t.server && op.kind == daplRead:
		return t.done(t.ep.PostRDMARead(iov, 0, t.peer[i], udat.CompletionDefault))
	case op.server == t.server && op.kind == daplWrite:
		return t.done(t.ep.PostRDMAWrite(iov, 0, t.peer[i], udat.CompletionDefault))
	case op.server == t.server:
		return t.done(t.ep.PostSend(iov, 0, udat.CompletionDefault))
	case op.kind == daplSend:
		if _, err := t.received(op.size); err != nil || last {
			return err
		}
		return t.prepare(i)
	}
	return nil
}
