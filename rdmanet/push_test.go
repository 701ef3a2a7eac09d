package rdmanet

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestMayWrite: a message of the stream needs more than 6 of the peer's receives and 3 requests, 2
// of which it leaves free. It ends where the peer's ring ends, and does not exceed what the peer
// allows, the largest message, and the free requests. While the peer allows less than a quarter of
// its window, or half of its receives are in use, what does not suffice is held back.
func TestMayWrite(t *testing.T) {
	const big, size = 5 << 32, 1 << 24
	for name, step := range map[string]struct {
		change     func(c *Conn)
		n, pending uint64
		want       uint64
	}{
		"all":                    {func(*Conn) {}, 1000, 1000, 1000},
		"the next":               {func(*Conn) {}, 1000, 2000, 1000},
		"7 receives":             {func(c *Conn) { c.peer.slots = 7 }, 1000, 1000, 1000},
		"6 receives":             {func(c *Conn) { c.peer.slots = 6 }, 1000, 1000, 0},
		"6 receives left":        {func(c *Conn) { c.out.messages += 10; c.peer.slots = 16 }, 1000, 1000, 0},
		"3 requests":             {func(c *Conn) { c.out.requests += 28; c.out.piece = 50 }, 1000, 1000, 50},
		"4 requests":             {func(c *Conn) { c.out.requests += 27; c.out.piece = 50 }, 1000, 1000, 100},
		"2 requests":             {func(c *Conn) { c.out.requests += 29 }, 1000, 1000, 0},
		"1 request":              {func(c *Conn) { c.out.requests += 30 }, 1000, 1000, 0},
		"no request":             {func(c *Conn) { c.out.requests += 31 }, 1000, 1000, 0},
		"all of the credit":      {func(c *Conn) { c.out.limit = c.out.position + 999 }, 999, 999, 999},
		"scarce credit":          {func(c *Conn) { c.out.limit = c.out.position + 999 }, 1000, 1000, 0},
		"a quarter":              {func(c *Conn) { c.out.limit = c.out.position + 1000 }, 4000, 4000, 1000},
		"scarce, little to send": {func(c *Conn) { c.out.limit = c.out.position + 999 }, 10, 10, 10},
		"scarce, much to send":   {func(c *Conn) { c.out.limit = c.out.position + 999 }, 10, 1000, 0},
		"no credit":              {func(c *Conn) { c.out.limit = c.out.position }, 1, 1, 0},
		"held back":              {func(c *Conn) { c.out.messages += 16 }, 16<<10 - 1, 16<<10 - 1, 0},
		"15 messages":            {func(c *Conn) { c.out.messages += 15 }, 16<<10 - 1, 16<<10 - 1, 16<<10 - 1},
		"enough":                 {func(c *Conn) { c.out.messages += 16 }, 1000, 16 << 10, 1000},
		"the ring's end":         {func(c *Conn) { c.out.position, c.out.limit = big+size-10, big+2*size }, 1000, 1000, 10},
		"the largest message":    {func(*Conn) {}, 1 << 20, 1 << 20, 1 << 19},
	} {
		c := &Conn{}
		c.peer = hello{slots: defaultSlots, ring: remoteRing{size: size}}
		out := &c.out
		out.position, out.window, out.piece = big, 4000, maxChunk
		out.limit = big + size/2
		out.messages, out.acked = 1<<31, 1<<31
		out.requests, out.done = big, big
		step.change(c)
		assert.Equal(t, c.mayWrite(step.n, step.pending), step.want, name)
	}
}

// TestWriteCompletes: a message has a completion if the writes since the last one have filled half
// of the send ring, or if it must have one, and otherwise none.
func TestWriteCompletes(t *testing.T) {
	client, _ := ends(t)
	client.mu.Lock()
	defer client.mu.Unlock()
	out := &client.out
	half := int(out.ring.cur.size / 2)
	for _, step := range []struct {
		n       int
		certain bool
		flags   udat.CompletionFlags
	}{
		{10, true, udat.CompletionDefault},
		{half - 2, false, udat.CompletionSuppress},
		{1, false, udat.CompletionSuppress},
		{1, false, udat.CompletionDefault},
		{half - 1, false, udat.CompletionSuppress},
		{1, true, udat.CompletionDefault},
		{half - 1, false, udat.CompletionSuppress},
		{2, false, udat.CompletionDefault},
		{1, false, udat.CompletionSuppress},
	} {
		before := out.requests
		assert.Assert(t, client.write(out.ring.cur.triplet(0, uint64(step.n)), step.certain))
		assert.Equal(t, out.requests, before+1)
		assert.Equal(t, out.ops[0].Flags, step.flags, "%d bytes", step.n)
		if step.flags == udat.CompletionDefault {
			assert.Equal(t, out.ops[0].Cookie, udat.Cookie(before))
			assert.Equal(t, out.silent+out.silentBy, 0)
		}
	}
}

// TestWriteInPieces: of several writes of a message only the last may have a completion, and each
// counts as a request without one. The first that cannot be posted is the last.
func TestWriteInPieces(t *testing.T) {
	client, _ := ends(t)
	client.mu.Lock()
	defer client.mu.Unlock()
	out := &client.out
	out.piece = 10
	assert.Assert(t, client.write(out.ring.cur.triplet(0, 5), true))
	before, messages := out.requests, out.messages
	assert.Assert(t, client.write(out.ring.cur.triplet(0, 25), false))
	assert.Equal(t, out.requests, before+3)
	assert.Equal(t, out.messages, messages+1)
	assert.Equal(t, out.silent, 3)
	assert.Equal(t, out.silentBy, 25)
	out.imm = false
	assert.Assert(t, client.write(out.ring.cur.triplet(0, 25), false))
	assert.Equal(t, out.requests, before+7) // the message is a request of its own
	assert.Equal(t, out.messages, messages+2)
	out.imm = true
	client.ep.Free()
	position := out.position
	assert.Assert(t, !client.write(out.ring.cur.triplet(0, 25), false))
	assert.Equal(t, out.position, position+10)
	assert.Equal(t, out.ops[0].Kind, udat.OpRDMAWrite)
	assert.Equal(t, out.ops[0].Flags, udat.CompletionSuppress)
	assert.Equal(t, client.state, stateDead)
}

// TestWriteTells: the peer learns from a message of the stream which receives have been reposted,
// with immediate data and without, and needs no credit for them.
func TestWriteTells(t *testing.T) {
	client, _ := ends(t)
	client.mu.Lock()
	defer client.mu.Unlock()
	for _, imm := range []bool{true, false} {
		client.out.imm = imm
		client.in.toldAt = client.in.reposted - creditBatch
		assert.Assert(t, client.owesCredit())
		assert.Assert(t, client.write(client.out.ring.cur.triplet(0, 1), false))
		assert.Assert(t, !client.owesCredit())
	}
}
