package rdmanet

import (
	"errors"

	"github.com/godat/godat/udat"
)

// newConn creates a connection with its endpoint and memory, and posts its receives. The callback
// asHandler returns the handler of the connection's events.
func newConn(pool *dispatchers, cfg config, asHandler func(*Conn) handler) (*Conn, error) {
	for _, size := range []*int{&cfg.readBuffer, &cfg.writeBuffer} {
		if *size == 0 {
			*size = pool.adapter.buffer
		}
	}
	c := &Conn{cfg: cfg, pool: pool, local: cfg.addr(Addr{}), remote: cfg.addr(Addr{})}
	c.readable.cond.L, c.writable.cond.L = &c.mu, &c.mu
	c.linger.limit = defaultLinger
	pool.adapter.use()
	if err := c.create(asHandler(c)); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

func (c *Conn) create(h handler) (err error) {
	if err = c.enterZone(); err != nil {
		return err
	}
	in, out := &c.in, &c.out
	if in.ring.cur, err = c.newMemory(firstRecv, udat.PrivRemoteWrite); err != nil {
		return err
	}
	in.most = uint64(c.cfg.readBuffer)
	in.window = in.ring.cur.size
	in.told = in.window // the value in the hello
	if in.most == in.window {
		in.growth = growthOver
	}
	m, err := c.newMemory(ownSize, 0)
	if err != nil {
		return err
	}
	c.own, out.ring.cur = m.lmr, memory{m.lmr, 0, firstSend}
	if err := c.createEP(h); err != nil {
		return err
	}
	return c.postRecvs(0, defaultSlots)
}

// enterZone enters the Zone of the settings, or creates a protection zone for this connection.
func (c *Conn) enterZone() (err error) {
	z := c.cfg.zone
	switch {
	case z == nil:
		c.pz, err = c.pool.adapter.CreatePZ()
	case z.adapter != c.pool.adapter:
		err = errDeviceGone // the device of the zone has failed, and was opened again later
	default:
		if err = z.enter(); err == nil {
			c.pz = z.pz
		}
	}
	return err
}

// newMemory allocates and registers memory for a ring. A short one on the device tcp is memory of
// Go's heap, because to map and unmap pages takes as long as to send a message.
func (c *Conn) newMemory(size int, rights udat.MemPriv) (memory, error) {
	alloc := c.pool.adapter.AllocLMR
	if c.pool.adapter.soft && size <= minRing {
		alloc = func(pz *udat.PZ, size int, priv udat.MemPriv) (*udat.LMR, error) {
			return c.pool.adapter.CreateLMR(pz, make([]byte, size), priv)
		}
	}
	l, err := alloc(c.pz, size, privatePriv|rights)
	return memory{l, 0, uint64(size)}, err
}

// newFullRing is like newMemory, for a ring that replaces the first, small one.
func (c *Conn) newFullRing(size int, rights udat.MemPriv) (memory, error) {
	growing <- struct{}{}
	defer func() { <-growing }()
	return c.newMemory(size, rights)
}

// createEP creates the endpoint on a dispatcher that has room for it.
func (c *Conn) createEP(h handler) error {
	attr := udat.EPAttr{
		MaxRecvDTOs: defaultSlots, MaxRequestDTOs: requests, MaxRequestIOV: 1, MaxRecvIOV: 1,
		MaxRDMAReadIn: c.pool.adapter.reads,
	}
	for _, fresh := range []bool{false, true} {
		d, err := c.pool.get(fresh)
		if err != nil {
			return err
		}
		ep, err := c.pool.adapter.CreateEP(c.pz, d.evd, d.evd, d.evd, &attr)
		if err == nil {
			c.d, c.ep = d, ep
			d.add(ep, h)
			return nil
		}
		if fresh || !errors.Is(err, udat.ErrInsufficientResources) {
			c.pool.put(d)
			return err
		}
		c.pool.putFull(d)
	}
	return nil
}

// repostBatch is the number of receives that are posted together. defaultSlots must be a multiple
// of it.
const repostBatch = 8

// postRecvs posts n receives, beginning with the slot firstSlot. n must be a multiple of
// repostBatch.
func (c *Conn) postRecvs(firstSlot, n int) error {
	var recvs [repostBatch]udat.Recv
	var iov [repostBatch][1]udat.LMRTriplet
	for n > 0 {
		for i := range recvs {
			iov[i][0] = c.own.Triplet(recvPlace(firstSlot+i), controlSize)
			recvs[i] = udat.Recv{IOV: iov[i][:], Cookie: udat.Cookie(firstSlot + i)}
		}
		if _, err := c.ep.PostRecvBatch(recvs[:]); err != nil {
			return err
		}
		firstSlot, n = firstSlot+repostBatch, n-repostBatch
	}
	return nil
}
