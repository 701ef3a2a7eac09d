//go:build !portablesocket

package tcpfabric

import (
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// TestKickers: a kicker is lent to one at a time, and again once it is given back. When they are
// closed, those that are lent stay open until they are given back, and no more are lent.
func TestKickers(t *testing.T) {
	var s kickers
	seen := map[*kicker]bool{}
	for range 3 {
		seen[s.lend()] = true
	}
	assert.Assert(t, len(seen) == 3 && !seen[nil])
	for k := range seen {
		s.giveBack(k)
	}
	var lent []*kicker
	for range 3 {
		k := s.lend()
		assert.Assert(t, seen[k], "it is new, or somebody else's")
		delete(seen, k)
		lent = append(lent, k)
	}
	for _, k := range lent {
		flags, err := unix.FcntlInt(uintptr(k.fd), unix.F_GETFD, 0)
		assert.NilError(t, err)
		assert.Assert(t, flags&unix.FD_CLOEXEC != 0)
		var count [8]byte
		_, err = unix.Read(k.fd, count[:])
		assert.ErrorIs(t, err, unix.EAGAIN)
		k.kick()
		_, err = unix.Read(k.fd, count[:])
		assert.NilError(t, err)
	}
	open := func() (n int) {
		for _, k := range lent {
			if _, err := unix.FcntlInt(uintptr(k.fd), unix.F_GETFD, 0); err == nil {
				n++
			}
		}
		return n
	}
	s.giveBack(lent[0])
	s.giveBack(lent[1])
	assert.Equal(t, open(), 3)
	s.close()
	assert.Equal(t, open(), 1)
	assert.Assert(t, s.lend() == nil)
	s.giveBack(lent[2])
	assert.Equal(t, open(), 0)
	assert.Assert(t, s.lend() == nil)
}
