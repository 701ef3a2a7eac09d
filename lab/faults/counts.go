package main

import (
	"encoding/binary"
	"os"
	"sync/atomic"
)

// Counts of a link's data messages.
const (
	countSent = iota
	countCompleted
	countReceived
	countFields
)

const maxLinks = 16

// counts contains how many messages an end has sent, completed and received on each link. If the
// counts are in a file, they remain after the process has ended.
type counts struct {
	values [maxLinks][countFields]atomic.Uint64
	file   *os.File // nil: the counts are in no file
}

func (c *counts) set(link uint8, field int, v uint64) {
	c.values[link][field].Store(v)
	if c.file != nil {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		c.file.WriteAt(b[:], int64(8*(int(link)*countFields+field)))
	}
}

// load reads the counts of a process from its file.
func (c *counts) load(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i := range maxLinks * countFields {
		if 8*i+8 <= len(b) {
			c.values[i/countFields][i%countFields].Store(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return nil
}

func (c *counts) snapshot() (v [maxLinks][countFields]uint64) {
	for i := range v {
		for j := range v[i] {
			v[i][j] = c.values[i][j].Load()
		}
	}
	return v
}

func (c *counts) restore(v [maxLinks][countFields]uint64) {
	for i := range v {
		for j := range v[i] {
			c.values[i][j].Store(v[i][j])
		}
	}
}
