package main

import (
	"fmt"

	"github.com/godat/godat/udat"
)

// Values of bytes that are not payload.
const (
	canaryByte = 0xc7 // around a region
	emptyByte  = 0xa5 // in a slot that awaits a payload
	canarySize = 4096 // on each side of a region
)

// memory is a registered region between two canaries that are not registered.
type memory struct {
	name  string
	whole []byte
	buf   []byte // the region
	lmr   *udat.LMR
}

func newMemory(ia *udat.IA, pz *udat.PZ, name string, size int, priv udat.MemPriv) (*memory, error) {
	m := &memory{name: name, whole: make([]byte, canarySize+size+canarySize)}
	m.buf = m.whole[canarySize : canarySize+size : canarySize+size]
	set(m.whole, canaryByte)
	set(m.buf, emptyByte)
	var err error
	m.lmr, err = ia.CreateLMR(pz, m.buf, priv)
	return m, err
}

func set(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// changed returns the index of the first byte that is not v, or -1.
func changed(b []byte, v byte) int {
	for i := range b {
		if b[i] != v {
			return i
		}
	}
	return -1
}

// check returns an error if a byte outside the region has changed.
func (m *memory) check() error {
	if i := changed(m.whole[:canarySize], canaryByte); i >= 0 {
		return fmt.Errorf("region %s: byte %d before it has changed", m.name, canarySize-i)
	}
	if i := changed(m.whole[canarySize+len(m.buf):], canaryByte); i >= 0 {
		return fmt.Errorf("region %s: byte %d behind it has changed", m.name, i)
	}
	return nil
}

// iov returns one segment of the region.
func (m *memory) iov(off, n int) []udat.LMRTriplet { return []udat.LMRTriplet{m.lmr.Triplet(off, n)} }
