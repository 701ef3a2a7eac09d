//go:build linux

package main

import (
	"bytes"
	"fmt"

	"github.com/godat/godat/lab/adversary/pattern"
	"github.com/godat/godat/udat"
	"golang.org/x/sys/unix"
)

// Sizes of what lies in the arena. Between any two pieces there is a guard, which nobody may write
// or read.
const (
	guardSize  = 4096
	roomSize   = 128 << 10
	smallSize  = 64 << 10
	slots      = 128      // requests in flight, and receives
	slotSize   = 80 << 10 // the largest message of the target
	recvSize   = 64 << 10
	windowSize = 16 << 10
	windowAt   = 4096 // the part of the region that a session's window opens
	windowLen  = 4096
	sealedSize = 64 << 10
)

// piece is a part of the arena.
type piece struct {
	name string
	mem  []byte
	fill byte
	lmr  *udat.LMR
}

// arena is all memory that the target registers.
type arena struct {
	all    []byte
	guards [][]byte
	secret []byte // the size of the largest guard, filled with pattern.Secret

	room, readOnly, writeOnly, local, foreign, window piece
	sources, sinks, receives, sealed                  piece
	freed                                             udat.RMRTriplet
	pz, other                                         *udat.PZ
}

const local = udat.PrivLocalRead | udat.PrivLocalWrite

func newArena(ia *udat.IA) *arena {
	a := &arena{}
	a.pz, a.other = must(ia.CreatePZ()), must(ia.CreatePZ())
	total := 12*guardSize + 2*roomSize + 4*smallSize + windowSize + slots*(2*slotSize+recvSize+3*guardSize)
	a.all = must(unix.Mmap(-1, 0, total+1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
	a.secret = bytes.Repeat([]byte{pattern.Secret}, slotSize+guardSize)
	copyAll(a.all, pattern.Secret)
	rest := a.all
	take := func(name string, size int, fill byte, priv udat.MemPriv, pz *udat.PZ) piece {
		a.guards = append(a.guards, rest[:guardSize])
		p := piece{name: name, mem: rest[guardSize : guardSize+size : guardSize+size], fill: fill}
		rest = rest[guardSize+size:]
		copyAll(p.mem, fill)
		p.lmr = must(ia.CreateLMR(pz, p.mem, priv))
		return p
	}
	a.room = take("room", roomSize, pattern.Room,
		local|udat.PrivRemoteRead|udat.PrivRemoteWrite|udat.PrivRemoteAtomic, a.pz)
	a.readOnly = take("read-only", smallSize, pattern.ReadOnly, local|udat.PrivRemoteRead, a.pz)
	a.writeOnly = take("write-only", smallSize, pattern.Secret, local|udat.PrivRemoteWrite, a.pz)
	a.local = take("local", smallSize, pattern.Secret, local, a.pz)
	a.foreign = take("other zone", smallSize, pattern.Secret, local|udat.PrivRemoteRead|udat.PrivRemoteWrite, a.other)
	a.window = take("window", windowSize, pattern.Secret, local, a.pz)
	a.sources = take("sources", slots*(slotSize+guardSize), pattern.Secret, udat.PrivLocalRead, a.pz)
	a.sinks = take("sinks", slots*(slotSize+guardSize), pattern.Secret, local, a.pz)
	a.receives = take("receives", slots*(recvSize+guardSize), pattern.Secret, local, a.pz)
	a.guards = append(a.guards, rest[:guardSize])
	gone := must(ia.CreateLMR(a.pz, a.local.mem, local|udat.PrivRemoteRead|udat.PrivRemoteWrite))
	a.freed = gone.RMRTriplet(0, smallSize)
	must(0, gone.Free())
	a.sealed = a.seal(ia)
	return a
}

// seal makes memory that this process itself cannot write: a write to it ends the process.
func (a *arena) seal(ia *udat.IA) piece {
	p := piece{name: "sealed"}
	p.mem = must(unix.Mmap(-1, 0, sealedSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
	pattern.Put(p.mem, sealedNumber)
	must(0, unix.Mprotect(p.mem, unix.PROT_READ))
	p.lmr = must(ia.CreateLMR(a.pz, p.mem, udat.PrivLocalRead))
	return p
}

const sealedNumber = 77

func (a *arena) grants() []pattern.Grant {
	of := func(p *piece, read, write, atomic bool) pattern.Grant {
		t := p.lmr.RMRTriplet(0, len(p.mem))
		return pattern.Grant{Name: p.name, Key: t.RMRContext, Address: t.TargetAddress, Length: t.SegmentLength,
			Read: read, Write: write, Atomic: atomic}
	}
	return []pattern.Grant{of(&a.room, true, true, true), of(&a.readOnly, true, false, false),
		of(&a.writeOnly, false, true, false), of(&a.local, false, false, false), of(&a.foreign, false, false, false),
		of(&a.window, false, false, false), of(&a.sources, false, false, false), of(&a.sinks, false, false, false),
		of(&a.receives, false, false, false), of(&a.sealed, false, false, false),
		{Name: "freed", Key: a.freed.RMRContext, Address: a.freed.TargetAddress, Length: a.freed.SegmentLength}}
}

// slot returns memory for one request or receive, and the guard behind it.
func slot(p *piece, i, size int) (mem, guard []byte) {
	from := i * (size + guardSize)
	return p.mem[from : from+size : from+size], p.mem[from+size : from+size+guardSize]
}

// isSecret reports whether b has only pattern.Secret.
func (a *arena) isSecret(b []byte) bool { return bytes.Equal(b, a.secret[:len(b)]) }

// wipe fills b with pattern.Secret.
func (a *arena) wipe(b []byte) { copy(b, a.secret) }

// check returns what in the arena is not as it must be while nothing is posted, and restores it.
func (a *arena) check() (findings []string) {
	bad := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	for i, g := range a.guards {
		if !a.isSecret(g) {
			bad("guard %d of the arena was written", i)
			a.wipe(g)
		}
	}
	for _, p := range []*piece{&a.readOnly, &a.local, &a.foreign, &a.window} {
		for i, b := range p.mem {
			if p == &a.window && i == windowAt {
				continue
			}
			if b != p.fill && (p != &a.window || i < windowAt || i >= windowAt+windowLen) {
				bad("byte %d of the region %s is %02x", i, p.name, b)
				break
			}
		}
		copyAll(p.mem, p.fill)
	}
	for _, p := range []*piece{&a.sources, &a.sinks, &a.receives} {
		size := slotSize
		if p == &a.receives {
			size = recvSize
		}
		for i := range slots {
			if _, guard := slot(p, i, size); !a.isSecret(guard) {
				bad("the guard behind slot %d of %s was written", i, p.name)
				a.wipe(guard)
			}
		}
	}
	if i := pattern.Wrong(a.sealed.mem, sealedNumber, 0); i >= 0 {
		bad("byte %d of the sealed memory was written", i)
	}
	copyAll(a.room.mem, a.room.fill)
	copyAll(a.writeOnly.mem, a.writeOnly.fill)
	return findings
}

func copyAll(b []byte, fill byte) {
	for i := range b {
		b[i] = fill
	}
}
