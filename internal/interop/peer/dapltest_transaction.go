package main

import (
	"bytes"
	"fmt"

	"github.com/godat/godat/udat"
)

// The transaction test of dapltest has a connection for each endpoint of each thread, on a port of
// its own, with private data. On each of them:
//
//  1. the client tells where its memory is, for each operation, and the server answers likewise;
//  2. the server sends a message (sync), the client answers;
//  3. in each iteration the end that initiates an operation sends, reads or writes, in the order of
//     the list; the other end of a send receives;
//  4. once more a message each way, and both disconnect.
//
// With -V the last three operations are sends in turn: the client checks at the first of them what
// has come, and the server at the second.
const (
	daplRMI  = daplMostOps * daplPlace // message with the places of the operations
	daplSync = 64
)

// transaction is one end of a connection of the test.
type transaction struct {
	*connection
	at   []int             // of each operation in this end's memory
	peer []udat.RMRTriplet // of each operation, the peer's memory
}

func (c *connection) postSync() error {
	return c.ep.PostRecv(c.iov(daplSyncs, daplSync), 0, udat.CompletionDefault)
}

func (t *transaction) run() error {
	next := daplOps
	for _, op := range t.ops {
		t.at = append(t.at, next)
		next += op.size()
	}
	if err := t.exchange(); err != nil {
		return err
	}
	for i := range t.ops {
		if err := t.receive(i); err != nil {
			return err
		}
	}
	t.fill(0)
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
			if t.validate && i == t.checks() {
				if err := t.check(iteration); err != nil {
					return err
				}
				t.fill(iteration + 1)
			}
		}
	}
	return t.sync()
}

// exchange tells the peer the places of the operations, and hears its own; the client begins.
func (t *transaction) exchange() error {
	places := t.bytes(daplOut, daplRMI)
	for i, op := range t.ops {
		if op.server != t.server && op.kind != daplSend {
			putPlace(places[i*daplPlace:], t.mem.RMRTriplet(t.at[i], op.size()))
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
		t.peer = append(t.peer, place(theirs[i*daplPlace:], op.size()))
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

func (t *transaction) local(i int) []udat.LMRTriplet { return t.iov(t.at[i], t.ops[i].size()) }

// receive posts the receive of an operation that the peer sends.
func (t *transaction) receive(i int) error {
	if op := t.ops[i]; op.server == t.server || op.kind != daplSend {
		return nil
	}
	return t.ep.PostRecv(t.local(i), 0, udat.CompletionDefault)
}

// do does an operation, or receives what the peer sends in it.
func (t *transaction) do(i int, last bool) error {
	op := t.ops[i]
	if op.server == t.server {
		return t.done(t.post(op, t.local(i), t.peer[i]))
	}
	if op.kind != daplSend {
		return nil
	}
	if _, err := t.received(op.size()); err != nil || last {
		return err
	}
	return t.receive(i)
}

// checks is the operation at which this end checks what has come.
func (t *transaction) checks() int {
	if t.server {
		return len(t.ops) - 2
	}
	return len(t.ops) - 3
}

// fill makes the bytes of what this end sends or writes, and of what the peer reads.
func (t *transaction) fill(iteration int) {
	for i := 0; t.validate && i < len(t.ops)-3; i++ {
		if op := t.ops[i]; (op.server == t.server) != (op.kind == daplRead) {
			copy(t.bytes(t.at[i], op.size()), daplBytes(iteration, op))
		}
	}
}

// check checks what this end has received or read, and what the peer has written.
func (t *transaction) check(iteration int) error {
	for i, op := range t.ops[:len(t.ops)-3] {
		if (op.server == t.server) != (op.kind == daplRead) {
			continue
		}
		if got := t.bytes(t.at[i], op.size()); !bytes.Equal(got, daplBytes(iteration, op)) {
			return fmt.Errorf("iteration %d, operation %d: %.40x, want all 0x%x", iteration, i, got, byte(iteration+1))
		}
	}
	return nil
}

func daplBytes(iteration int, op daplOp) []byte {
	return bytes.Repeat([]byte{byte(iteration + 1)}, op.size())
}
