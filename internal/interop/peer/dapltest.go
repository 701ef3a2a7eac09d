package main

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"strconv"

	"github.com/godat/godat/udat"
)

// The protocol of dapltest. On a first connection the client sends two messages, who it is and what
// it wants, and the server answers with the first port of the test and disconnects. The connections
// of the test come to that port and those after it: dapltest_transaction.go (-T T) and
// dapltest_performance.go (-T P). -T Q asks the server to end.
//
// All numbers are little-endian; a message of the first connection has 8192 bytes.
const (
	daplPort    = udat.ConnQual(62000)
	daplMessage = 8192
	daplVersion = 6
	daplMost    = 1 << 20 // bytes of an operation that this program serves
	daplMostOps = 100
	daplDeepest = 128 // operations in flight
)

// Kinds of tests.
const (
	daplTransaction = 1
	daplPerformance = 2
	daplQuit        = 4
)

// Kinds of operations.
const (
	daplRead  = 0
	daplWrite = 1
	daplSend  = 2
)

var daplKinds = map[string]uint32{"RR": daplRead, "RW": daplWrite, "SR": daplSend}

// daplOp is one operation of a test.
type daplOp struct {
	server         bool // initiates it
	kind           uint32
	segments, each int // bytes of each segment
}

func (op *daplOp) size() int { return op.segments * op.each }

// daplCommand is what the client wants.
type daplCommand struct {
	test                           uint32
	iterations, threads, endpoints int
	pipeline                       int  // -T P: operations in flight
	reserved                       bool // the server makes reserved service points (RSP)
	validate, polls                bool
	ops                            []daplOp
}

// parseDapltest parses the command line of a client.
func parseDapltest(switches []string) (c daplCommand, err error) {
	f := flag.NewFlagSet("dapltest", flag.ContinueOnError)
	test := f.String("T", "", "kind of test: T, P or Q")
	mode := f.String("m", "b", "-T P: b blocks, p polls")
	f.IntVar(&c.iterations, "i", 1000, "iterations")
	f.IntVar(&c.threads, "t", 1, "-T T: threads")
	f.IntVar(&c.endpoints, "w", 1, "-T T: endpoints of each thread")
	f.IntVar(&c.pipeline, "p", math.MaxInt32, "-T P: operations in flight")
	f.BoolVar(&c.reserved, "r", false, "-T T: reserved service points")
	f.BoolVar(&c.validate, "V", false, "-T T: check the bytes")
	f.BoolVar(&c.polls, "P", false, "-T T: poll")
	if err := f.Parse(switches); err != nil {
		return c, err
	}
	operands := f.Args()
	switch *test {
	case "T":
		c.test = daplTransaction
	case "P":
		c.test, c.polls = daplPerformance, *mode == "p"
		operands = append([]string{"client"}, operands...)
	case "Q":
		c.test = daplQuit
	default:
		return c, fmt.Errorf("-T %q: must be T, P or Q", *test)
	}
	for len(operands) > 0 {
		var op daplOp
		if op, operands, err = parseOp(operands); err != nil {
			return c, err
		}
		c.ops = append(c.ops, op)
	}
	if c.validate { // in these the ends wait for each other
		for _, server := range []bool{true, false, true} {
			c.ops = append(c.ops, daplOp{server, daplSend, 1, 4096})
		}
	}
	return c, c.check()
}

// parseOp parses one operation, client|server SR|RW|RR [BYTES [SEGMENTS]], and returns the rest.
func parseOp(s []string) (daplOp, []string, error) {
	op := daplOp{server: s[0] == "server", segments: 1, each: 4096}
	if len(s) < 2 || !op.server && s[0] != "client" {
		return op, nil, fmt.Errorf("%q: must be client or server, and SR, RW or RR", s)
	}
	var ok bool
	if op.kind, ok = daplKinds[s[1]]; !ok {
		return op, nil, fmt.Errorf("operation %q: must be SR, RW or RR", s[1])
	}
	s = s[2:]
	for _, number := range []*int{&op.each, &op.segments} {
		if len(s) > 0 {
			if n, err := strconv.Atoi(s[0]); err == nil {
				*number, s = n, s[1:]
			}
		}
	}
	return op, s, nil
}

// check checks what the command line or a client asks for.
func (c *daplCommand) check() error {
	switch {
	case c.threads < 1 || c.endpoints < 1 || c.threads > 64 || c.endpoints > 64/c.threads:
		return fmt.Errorf("%d threads of %d endpoints: must be 1 to 64 endpoints", c.threads, c.endpoints)
	case c.iterations < 1 || c.pipeline < 1:
		return fmt.Errorf("%d iterations, a pipeline of %d: must be at least 1", c.iterations, c.pipeline)
	case len(c.ops) > daplMostOps || c.validate && len(c.ops) < 3:
		return fmt.Errorf("%d operations", len(c.ops))
	case c.test == daplPerformance && (len(c.ops) != 1 || c.ops[0].kind == daplSend):
		return errors.New("the performance test has one operation, RW or RR")
	}
	for i, op := range c.ops {
		if op.kind > daplSend || op.segments < 1 || op.each < 1 || op.segments > daplMost || op.each > daplMost/op.segments {
			return fmt.Errorf("operation %d: kind %d, %d times %d bytes", i, op.kind, op.segments, op.each)
		}
	}
	return nil
}

// connections is their number.
func (c *daplCommand) connections() int {
	switch c.test {
	case daplTransaction:
		return c.threads * c.endpoints
	case daplPerformance:
		return 1
	}
	return 0
}

// The command on the wire: what is at which byte.
const (
	daplLittle = 4 // 1: little-endian
	opBytes    = 20
)

// fields calls number and flag for each field of a command, with its place; the operations follow.
func (c *daplCommand) fields(number func(at int, v *int), flag func(at int, v *bool)) {
	switch c.test {
	case daplTransaction:
		number(264, &c.iterations)
		number(268, &c.threads)
		number(272, &c.endpoints)
		flag(280, &c.reserved)
		flag(288, &c.validate)
		flag(292, &c.polls)
	case daplPerformance:
		flag(528, &c.polls)
		number(532, &c.iterations)
		number(536, &c.pipeline)
	}
}

func (c *daplCommand) put(b []byte) {
	u32 := func(at, v int) { binary.LittleEndian.PutUint32(b[at:], uint32(v)) }
	truth := func(at int, v bool) {
		if v {
			u32(at, 1)
		}
	}
	u32(0, daplVersion)
	u32(daplLittle, 1)
	c.fields(func(at int, v *int) { u32(at, *v) }, func(at int, v *bool) { truth(at, *v) })
	switch c.test {
	case daplTransaction:
		u32(564, len(c.ops))
		for i, op := range c.ops {
			at := 568 + i*opBytes
			truth(at, op.server)
			u32(at+4, int(op.kind))
			u32(at+8, op.segments)
			u32(at+12, op.each)
		}
	case daplPerformance:
		u32(540, int(c.ops[0].kind))
		u32(544, c.ops[0].each)
		u32(548, c.ops[0].segments)
	}
}

// receiveCommand reads what a client asks for.
func receiveCommand(test uint32, b []byte) (*daplCommand, error) {
	u32 := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	c := &daplCommand{test: test, iterations: 1, threads: 1, endpoints: 1, pipeline: 1}
	c.fields(func(at int, v *int) { *v = u32(at) }, func(at int, v *bool) { *v = u32(at) != 0 })
	switch test {
	case daplTransaction:
		for i := range min(u32(564), daplMostOps+1) {
			at := 568 + i*opBytes
			c.ops = append(c.ops, daplOp{u32(at) != 0, uint32(u32(at + 4)), u32(at + 8), u32(at + 12)})
		}
	case daplPerformance:
		c.ops = []daplOp{{false, uint32(u32(540)), u32(548), u32(544)}}
	case daplQuit:
	default:
		return c, fmt.Errorf("a test of kind %d", test)
	}
	return c, c.check()
}

// daplServer serves clients until one asks it to quit.
func daplServer(addr netip.Addr, _ []string) error {
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
		c, err := e.daplServe(requests, first)
		if err != nil || c.test == daplQuit {
			return err
		}
		first += udat.ConnQual(c.connections())
	}
}

// daplServe serves one client, whose test has its connections on first and the ports after it.
func (e *end) daplServe(requests *udat.EVD, first udat.ConnQual) (*daplCommand, error) {
	ep, err := e.newEP()
	if err != nil {
		return nil, err
	}
	for i := range 2 {
		if err := ep.PostRecv(e.iov(i*daplMessage, daplMessage), 0, udat.CompletionDefault); err != nil {
			return nil, err
		}
	}
	if err := e.accept(requests, ep); err != nil {
		return nil, err
	}
	if err := e.established(1); err != nil {
		return nil, err
	}
	for range 2 {
		if _, err := e.received(daplMessage); err != nil {
			return nil, err
		}
	}
	c, err := receiveCommand(binary.LittleEndian.Uint32(e.bytes(8, 4)), e.bytes(daplMessage, daplMessage))
	if err != nil {
		return nil, err
	}
	ended := make(chan error, c.connections())
	for i := range c.connections() {
		own, err := e.connection(c, true)
		if err != nil {
			return nil, err
		}
		requests, err := own.listen(first + udat.ConnQual(i)) // before the client knows the port
		if err != nil {
			return nil, err
		}
		go func() { ended <- own.serve(requests) }()
	}
	answer := e.bytes(0, 12)
	for i, v := range []uint32{daplVersion, 1, uint32(first)} {
		binary.LittleEndian.PutUint32(answer[4*i:], v)
	}
	if err := e.done(ep.PostSend(e.iov(0, daplMessage), 0, udat.CompletionDefault)); err != nil {
		return nil, err
	}
	if err := e.disconnect(ep); err != nil {
		return nil, err
	}
	for range c.connections() {
		if err := <-ended; err != nil {
			return nil, err
		}
	}
	return c, ep.Free()
}

func daplClient(addr netip.Addr, switches []string) error {
	c, err := parseDapltest(switches)
	if err != nil {
		return err
	}
	e, err := newEnd(addr, 2*daplMessage, 1, 4)
	if err != nil {
		return err
	}
	defer e.close()
	first, err := e.ask(addr, &c)
	if err != nil {
		return err
	}
	ended := make(chan error, c.connections())
	for i := range c.connections() {
		own, err := e.connection(&c, false)
		if err != nil {
			return err
		}
		go func() { ended <- own.call(addr, first+udat.ConnQual(i)) }()
	}
	for range c.connections() {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// ask tells the server what the client wants, and returns the first port of the test.
func (e *end) ask(addr netip.Addr, c *daplCommand) (udat.ConnQual, error) {
	ep, err := e.newEP()
	if err != nil {
		return 0, err
	}
	if err := ep.PostRecv(e.iov(daplMessage, daplMessage), 0, udat.CompletionDefault); err != nil {
		return 0, err
	}
	if err := connect(ep, addr, daplPort, nil); err != nil {
		return 0, err
	}
	if err := e.established(1); err != nil {
		return 0, err
	}
	who := e.bytes(0, 16)
	for i, v := range []uint32{daplVersion, 1, c.test, uint32(c.threads)} {
		binary.LittleEndian.PutUint32(who[4*i:], v)
	}
	if err := e.done(ep.PostSend(e.iov(0, daplMessage), 0, udat.CompletionDefault)); err != nil {
		return 0, err
	}
	clear(who)
	c.put(e.bytes(0, daplMessage))
	if err := e.done(ep.PostSend(e.iov(0, daplMessage), 0, udat.CompletionDefault)); err != nil {
		return 0, err
	}
	if _, err := e.received(daplMessage); err != nil {
		return 0, err
	}
	answer := e.bytes(daplMessage, 12)
	if version := binary.LittleEndian.Uint32(answer); version != daplVersion {
		return 0, fmt.Errorf("the server's version is %d, want %d", version, daplVersion)
	}
	return udat.ConnQual(binary.LittleEndian.Uint32(answer[8:])), e.disconnected(1)
}

// connection is one end of a connection of the test.
type connection struct {
	*end
	*daplCommand
	ep     *udat.EP
	server bool
}

// connection makes the memory, the dispatchers and the endpoint, and posts the first receives.
func (e *end) connection(command *daplCommand, server bool) (*connection, error) {
	own, err := e.sibling(command.memory(), 1, command.inFlight())
	if err != nil {
		return nil, err
	}
	if command.polls {
		own.next = poll
	}
	c := &connection{end: own, daplCommand: command, server: server}
	if c.ep, err = c.newEP(); err == nil {
		err = c.prepare()
	}
	return c, err
}

// memory is the number of bytes that a connection needs: messages, and the operations' memory.
func (c *daplCommand) memory() int {
	n := daplOps
	for _, op := range c.ops {
		n += op.size()
	}
	return n
}

// inFlight is the number of operations in flight.
func (c *daplCommand) inFlight() int {
	return max(len(c.ops)+3, min(c.pipeline, c.iterations, daplDeepest))
}

// private is the private data of a client.
func (c *daplCommand) private() []byte {
	if c.test == daplTransaction {
		return []byte("DAPL and RDMA rule! Test 4321.")
	}
	return nil
}

func (c *connection) listen(port udat.ConnQual) (*udat.EVD, error) {
	if !c.reserved {
		return c.end.listen(port)
	}
	requests, err := c.end.listen()
	if err == nil {
		_, err = c.ia.CreateRSP(port, c.ep, requests)
	}
	return requests, err
}

func (c *connection) serve(requests *udat.EVD) error {
	cr, err := c.request(requests, c.private())
	if err != nil {
		return err
	}
	ep := c.ep
	if c.reserved {
		ep = nil // the request brings it
	}
	if err := cr.Accept(ep, nil); err != nil {
		return err
	}
	if err := c.run(); err != nil {
		return err
	}
	return c.disconnected(1)
}

func (c *connection) call(to netip.Addr, port udat.ConnQual) error {
	if err := connect(c.ep, to, port, c.private()); err != nil {
		return err
	}
	if err := c.run(); err != nil {
		return err
	}
	return c.disconnect(c.ep)
}

// prepare posts what must be there when the peer begins.
func (c *connection) prepare() error {
	if c.test == daplPerformance {
		return c.postPlace()
	}
	if err := c.ep.PostRecv(c.iov(daplPlaces, daplRMI), 0, udat.CompletionDefault); err != nil {
		return err
	}
	return c.postSync()
}

func (c *connection) run() error {
	if err := c.established(1); err != nil {
		return err
	}
	if c.test == daplPerformance {
		return (&performance{connection: c}).run()
	}
	return (&transaction{connection: c}).run()
}

func (c *connection) send(size int) error {
	return c.done(c.ep.PostSend(c.iov(daplOut, size), 0, udat.CompletionDefault))
}

// post begins an operation that this end initiates.
func (c *connection) post(op daplOp, iov []udat.LMRTriplet, to udat.RMRTriplet) error {
	switch op.kind {
	case daplRead:
		return c.ep.PostRDMARead(iov, 0, to, udat.CompletionDefault)
	case daplWrite:
		return c.ep.PostRDMAWrite(iov, 0, to, udat.CompletionDefault)
	}
	return c.ep.PostSend(iov, 0, udat.CompletionDefault)
}

// Where things are in the memory of one connection; the operations follow.
const (
	daplPlaces = 0       // the peer's
	daplOut    = daplRMI // messages that this end sends
	daplSyncs  = 2 * daplRMI
	daplOps    = daplSyncs + daplSync
)

// A place in memory on the wire: the context and the address.
const daplPlace = 12

func putPlace(b []byte, r udat.RMRTriplet) {
	binary.LittleEndian.PutUint32(b, r.RMRContext)
	binary.LittleEndian.PutUint64(b[4:], r.TargetAddress)
}

func place(b []byte, size int) udat.RMRTriplet {
	return udat.RMRTriplet{RMRContext: binary.LittleEndian.Uint32(b),
		TargetAddress: binary.LittleEndian.Uint64(b[4:]), SegmentLength: uint64(size)}
}
