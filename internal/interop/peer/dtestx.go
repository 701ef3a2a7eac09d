package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"time"

	"github.com/godat/godat/udat"
)

// The protocol of dtestx, the extensions: immediate data and atomic operations. A greeting over TCP
// as dtest's, which the client answers; one connection, whose private data is the number of the
// peer's endpoint, both ways; and on it:
//
//  1. both ends tell where their targets are, as in dtest;
//  2. both write to the other's target, with immediate data;
//  3. both set the first word of their target, and the other compares and swaps it: the client's
//     comparison holds, the server's does not;
//  4. both set it anew, and the other adds to it twice;
//  5. both disconnect.
//
// dtestx says nothing between the steps: it sleeps for 1 to 2 s in each. This program does not
// have to: it reads the peer's word (RDMA read) to see when it is set. It also waits for the peer's
// write before it writes, so that the peer does not go on before this end's word is set; two ends
// like that would wait for each other.
const (
	dtestxQual = udat.ConnQual(31112)
	dtestxSize = 256 // -b
	dtestxWord = 8
)

// dtestxRole is what an end does.
type dtestxRole struct {
	text          string // in the client's or server's write, if it is dtestx's
	immediate     uint32
	start         uint64 // of its own word, in 3
	compare, swap uint64 // of the other's word
	swapped       uint64 // its own word, after the other has compared it
	base          uint64 // of its own word, in 4
	add           uint64 // to the other's word
}

var (
	dtestxServes = dtestxRole{"Server data", 0x1111, 0x12345, 0x654321, 0x6789a, 0x98765, 0x10, 0x100}
	dtestxCalls  = dtestxRole{"Client written data", 0x7777, 0x54321, 0x12345, 0x98765, 0x54321, 0x100, 0x10}
)

// dtestx is one end.
type dtestx struct {
	*tester
	mine, theirs dtestxRole
}

func newDtestx(addr netip.Addr, switches []string, mine, theirs dtestxRole) (*dtestx, error) {
	f := flag.NewFlagSet("dtestx", flag.ContinueOnError)
	size := f.Int("b", dtestxSize, "bytes of the target")
	f.Bool("m", false, "several endpoints, which only datagrams have")
	if err := f.Parse(switches); err != nil {
		return nil, err
	}
	if *size < 32 { // of the text
		return nil, fmt.Errorf("-b %d: too small, the least is 32", *size)
	}
	t, err := newTester(addr, *size, 4, udat.PrivAll|udat.PrivRemoteAtomic)
	return &dtestx{t, mine, theirs}, err
}

func dtestxServer(addr netip.Addr, switches []string) error {
	t, err := newDtestx(addr, switches, dtestxServes, dtestxCalls)
	if err != nil {
		return err
	}
	defer t.close()
	requests, err := t.listen(dtestxQual)
	if err != nil {
		return err
	}
	if err := tellClient(addr, true); err != nil {
		return err
	}
	first := make([]byte, 4)
	cr, err := t.request(requests, first)
	if err != nil {
		return err
	}
	if err := cr.Accept(t.ep, first); err != nil {
		return err
	}
	if err := t.established(1); err != nil {
		return err
	}
	return t.run()
}

func dtestxClient(addr netip.Addr, switches []string) error {
	t, err := newDtestx(addr, switches, dtestxCalls, dtestxServes)
	if err != nil {
		return err
	}
	defer t.close()
	server, err := askServer(addr, true)
	if err != nil {
		return err
	}
	first := make([]byte, 4)
	if err := t.connect(server, dtestxQual, first, first); err != nil {
		return err
	}
	return t.run()
}

func (t *dtestx) run() error {
	for _, step := range []func() error{t.tell, t.hear, t.immediate, t.compareSwap, t.fetchAdd} {
		if err := step(); err != nil {
			return err
		}
	}
	return t.disconnected(1)
}

func (t *dtestx) immediate() error {
	if err := t.hearImmediate(t.theirs.immediate); err != nil {
		return err
	}
	if text := t.target.Bytes(); !bytes.HasPrefix(text, []byte(t.theirs.text)) {
		return fmt.Errorf("the peer has written %.40q, want %q", text, t.theirs.text)
	}
	t.set(t.mine.start)
	copy(t.buffer(bufferOut, t.size), "written in Go\x00")
	return t.done(t.ep.PostRDMAWriteImmediate(t.bufferIOV(bufferOut, t.size), 0, t.peer, t.mine.immediate,
		udat.CompletionDefault))
}

func (t *dtestx) compareSwap() error {
	if err := t.until(t.theirs.start, t.theirWord); err != nil {
		return err
	}
	old, err := t.atomic(func(local udat.LMRTriplet, remote udat.RMRTriplet) error {
		return t.ep.PostCmpSwap(t.mine.compare, t.mine.swap, local, 0, remote, udat.CompletionDefault)
	})
	if err == nil && old != t.theirs.start {
		err = fmt.Errorf("the swap brings 0x%x, want 0x%x", old, t.theirs.start)
	}
	if err != nil {
		return err
	}
	return t.until(t.theirs.swapped, t.theirWord)
}

func (t *dtestx) fetchAdd() error {
	// The server begins, when it has seen the client's swap.
	if t.mine == dtestxServes {
		if err := t.until(t.mine.swapped, t.myWord); err != nil {
			return err
		}
		t.set(t.mine.base)
	}
	if err := t.until(t.theirs.base, t.theirWord); err != nil {
		return err
	}
	if t.mine == dtestxCalls {
		if word, err := t.myWord(); err != nil || word != t.mine.swapped {
			return errors.Join(err, fmt.Errorf("the peer has swapped to 0x%x, want 0x%x", word, t.mine.swapped))
		}
		t.set(t.mine.base)
	}
	for i := range uint64(2) {
		old, err := t.atomic(func(local udat.LMRTriplet, remote udat.RMRTriplet) error {
			return t.ep.PostFetchAdd(t.mine.add, local, 0, remote, udat.CompletionDefault)
		})
		if want := t.theirs.base + i*t.mine.add; err == nil && old != want {
			err = fmt.Errorf("addition %d brings 0x%x, want 0x%x", i, old, want)
		}
		if err != nil {
			return err
		}
	}
	return t.until(t.mine.base+2*t.theirs.add, t.myWord)
}

// atomic does an operation on the peer's word and returns what it brings.
func (t *dtestx) atomic(post func(local udat.LMRTriplet, remote udat.RMRTriplet) error) (uint64, error) {
	remote := t.peer
	remote.SegmentLength = dtestxWord
	err := t.done(post(t.mem.Triplet(t.at(bufferIn), dtestxWord), remote))
	return binary.NativeEndian.Uint64(t.buffer(bufferIn, dtestxWord)), err
}

func (t *dtestx) theirWord() (uint64, error) {
	return t.atomic(func(local udat.LMRTriplet, remote udat.RMRTriplet) error {
		return t.ep.PostRDMARead([]udat.LMRTriplet{local}, 0, remote, udat.CompletionDefault)
	})
}

func (t *dtestx) myWord() (uint64, error) { return t.target.LoadUint64(0) }

func (t *dtestx) set(word uint64) { binary.NativeEndian.PutUint64(t.target.Bytes(), word) }

// until waits until a word has the value.
func (t *dtestx) until(want uint64, word func() (uint64, error)) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got, err := word()
		switch {
		case err != nil:
			return err
		case got == want:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("the word is 0x%x, want 0x%x", got, want)
		}
	}
}
