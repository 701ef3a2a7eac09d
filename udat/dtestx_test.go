//go:build linux

package udat_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestDtestx has dtestx as its peer, in both roles: the C library's program for immediate data and
// atomic operations. Each end writes to the other with immediate data, and then swaps and adds in
// the first word of what was written. dtestx paces itself by sleeps of 1 to 2 s and tells nothing
// of its progress: this end sees it in the peer's memory, by RDMA Read.
func TestDtestx(t *testing.T) {
	for _, active := range []bool{true, false} {
		onEach(t, func(t *testing.T, dev string) { dtestx(t, dev, active) })
	}
}

func dtestx(t *testing.T, dev string, active bool) {
	const (
		qual     = udat.ConnQual(31112)
		size     = 256
		out, old = size, 2 * size // places in the end's memory: what is written, and what reads and atomics bring
	)
	e := dtestEnd(t, dev, "dtestx")
	attr := e.ia.Device().Attr()
	if !attr.WriteImmediate || !attr.Atomics {
		t.Skip("no immediate data or no atomics here")
	}
	target, err := e.ia.AllocLMR(e.pz, size, udat.PrivAll|udat.PrivRemoteAtomic)
	assert.NilError(t, err)
	word := func() uint64 {
		v, err := target.LoadUint64(0)
		assert.NilError(t, err)
		return v
	}
	set := func(v uint64) { binary.NativeEndian.PutUint64(target.Bytes(), v) }

	private := make([]byte, 4) // the peer's first endpoint; its answer is the same
	var said *bytes.Buffer
	var ended chan error
	if active {
		said, ended = dtestProgram(t, e, "dtestx", "-s")
		dtestConnect(t, e, qual, private, private)
	} else {
		side, err := net.Listen("tcp4", ":"+dtestSide)
		assert.NilError(t, err)
		defer side.Close()
		said, ended = dtestProgram(t, e, "dtestx", "-h", e.ia.Addr().String())
		dtestAccept(t, e, side, qual, private, private)
	}
	dtestTell(t, e, 0, target.RMRTriplet(0, size))
	place := dtestHear(t, e, 0, size)

	// What the server and the client send and start from. A dtestx that serves is the client's peer.
	role := struct {
		immediate, theirImmediate uint32
		start, theirStart         uint64 // of the words
		compare, swap             uint64
		swapped, theirSwapped     uint64 // the words afterwards
		add, theirAdd             uint64
		sum, theirSum             uint64 // where the additions begin
	}{0x7777, 0x1111, 0x54321, 0x12345, 0x12345, 0x98765, 0x54321, 0x98765, 0x10, 0x100, 0x100, 0x10}
	if !active {
		role.immediate, role.theirImmediate = role.theirImmediate, role.immediate
		role.start, role.theirStart = role.theirStart, role.start
		role.compare, role.swap = 0x654321, 0x6789A // unlike what is there
		role.swapped, role.theirSwapped = role.theirSwapped, role.swapped
		role.add, role.theirAdd = role.theirAdd, role.add
		role.sum, role.theirSum = role.theirSum, role.sum
	}

	ev := completion(t, e.recv, 1)
	assert.Assert(t, ev.Operation == udat.DTOReceiveWriteImm && ev.Immediate == role.theirImmediate && ev.Length == size,
		"%s 0x%x", describe(ev), ev.Immediate)
	assert.Assert(t, strings.Contains(cString(target.Bytes()), map[bool]string{true: "Server data",
		false: "Client written data"}[active]), "%q", target.Bytes()[:32])
	set(role.start) // before the peer goes on
	copy(e.get(out, size), "written by godat\x00")
	assert.NilError(t, e.ep.PostRDMAWriteImmediate(e.iov(out, size), 1, place, role.immediate, udat.CompletionDefault))
	completion(t, e.request, 1)

	place.SegmentLength = 8
	local := e.mem.Triplet(old, 8)
	brought := func() uint64 { return binary.NativeEndian.Uint64(e.get(old, 8)) }
	peerHas := func(v uint64, when string) {
		t.Helper()
		for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			assert.NilError(t, e.ep.PostRDMARead([]udat.LMRTriplet{local}, 2, place, udat.CompletionDefault))
			completion(t, e.request, 2)
			if brought() == v {
				return
			}
			assert.Assert(t, time.Now().Before(until), "the peer's word is 0x%x and not 0x%x, %s", brought(), v, when)
		}
	}
	peerHas(role.theirStart, "before the swap")
	assert.NilError(t, e.ep.PostCmpSwap(role.compare, role.swap, local, 3, place, udat.CompletionDefault))
	completion(t, e.request, 3)
	assert.Equal(t, brought(), role.theirStart)
	peerHas(role.theirSwapped, "after the swap")

	if !active { // the peer's swap happens; the other one's can't be seen
		eventually(t, func() bool { return word() == role.swapped }, "the peer's swap")
		set(role.sum)
	}
	peerHas(role.theirSum, "before the additions")
	if active {
		assert.Equal(t, word(), role.swapped)
		set(role.sum)
	}
	for i := range uint64(2) {
		assert.NilError(t, e.ep.PostFetchAdd(role.add, local, 4, place, udat.CompletionDefault))
		completion(t, e.request, 4)
		assert.Equal(t, brought(), role.theirSum+i*role.add)
	}
	eventually(t, func() bool { return word() == role.sum+2*role.theirAdd }, "the peer's additions")

	dtestEnds(t, e, false, said, ended)
	for _, want := range []string{"RDMA_WRITE_WITH_IMMEDIATE_DATA test - PASSED", "CMP_SWAP test - PASSED",
		"FETCH_ADD test - PASSED", "written by godat"} {
		assert.Assert(t, strings.Contains(said.String(), want), "%s", said)
	}
}
