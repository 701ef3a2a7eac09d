package engine

import (
	"encoding/binary"
	"fmt"
)

// A payload is an arithmetic progression of 64-bit words that starts at a value computed from the
// queue pair and the sequence number. No two words of a message are equal, and no two messages in
// flight are equal. So comparing every byte detects data that is lost, late or misplaced.
const payloadStep = 0x9E3779B97F4A7C15

func payloadStart(qp int, seq uint64) uint64 {
	x := (seq+1)*0xBF58476D1CE4E5B9 ^ uint64(qp+1)*0x94D049BB133111EB
	return x ^ x>>29
}

// fill writes the payload of message seq of a queue pair to b.
func fill(b []byte, qp int, seq uint64) {
	v := payloadStart(qp, seq)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, v)
		b = b[8:]
		v += payloadStep
	}
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
}

// check returns an error if b is not the payload of message seq of a queue pair.
func check(b []byte, qp int, seq uint64) error {
	v := payloadStart(qp, seq)
	rest := b
	for len(rest) >= 8 {
		if binary.LittleEndian.Uint64(rest) != v {
			return mismatch(b, len(b)-len(rest), qp, seq)
		}
		rest = rest[8:]
		v += payloadStep
	}
	for i := range rest {
		if rest[i] != byte(v>>(8*i)) {
			return mismatch(b, len(b)-len(rest)+i, qp, seq)
		}
	}
	return nil
}

func mismatch(b []byte, at, qp int, seq uint64) error {
	return fmt.Errorf("wrong payload: message %d of queue pair %d, %d bytes, differs from byte %d on", seq, qp, len(b), at)
}

// fillMemory fills an end's memory before the case begins. In the areas that the peer reads, slot n
// gets the payload of sequence number n, and this content never changes. The areas that the peer
// writes, or modifies by atomics, stay zero.
func fillMemory(lay *layout, mem []byte) {
	for qp := range lay.qps {
		for slot := range lay.tx.slots {
			at := lay.tx.at(qp, slot)
			fill(mem[at:at+lay.size], qp, slot)
		}
	}
}
