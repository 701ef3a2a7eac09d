package cm

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestReap: each lingering connection is destroyed when its own time has passed.
func TestReap(t *testing.T) {
	start := time.Now()
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	m := &Manager{retired: map[dropper]time.Time{}, reapAt: at(1)}
	conns := make([]*Conn, 6)
	for i := range conns { // their times: 1 1 2 2 3 3
		conns[i] = &Conn{m: m, state: stLeaving, destroyed: true}
		m.retired[conns[i]] = at(1 + i/2)
	}
	for now := 0; now <= 3; now++ {
		m.reap(at(now))
		for i, c := range conns {
			_, kept := m.retired[c]
			assert.Equal(t, kept, 1+i/2 > now)
			assert.Equal(t, c.state == stOver, !kept)
		}
		if now < 3 {
			assert.Equal(t, m.nextReap(), at(now+1))
		}
	}
	assert.Assert(t, m.nextReap().IsZero())
}

// TestClampDepth: a peer's read depth is limited by the device, and to 8 bits.
func TestClampDepth(t *testing.T) {
	for _, c := range []struct {
		n     uint8
		limit int
		want  uint8
	}{{4, 16, 4}, {16, 16, 16}, {17, 16, 16}, {255, 128, 128}, {255, 256, 255}, {255, 1 << 20, 255}, {3, 0, 0},
		{3, -1, 0}} {
		assert.Equal(t, clampDepth(c.n, c.limit), c.want)
	}
}

// TestShut: a manager that is shut accepts no new listeners and connections until it is reopened. A
// manager that has listeners or connections cannot be shut.
func TestShut(t *testing.T) {
	m := &Manager{port: &Port{}}
	assert.NilError(t, m.Shut())
	assert.Assert(t, m.IsShut())
	assert.ErrorIs(t, m.Shut(), fabric.ErrClosed)
	assert.ErrorIs(t, m.reserve(), fabric.ErrClosed)
	m.Reopen()
	assert.NilError(t, m.reserve())
	assert.ErrorIs(t, m.Shut(), fabric.ErrInUse)
	assert.Assert(t, !m.IsShut())
	m.release()
	assert.NilError(t, m.Shut())
}
