package udat_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// seedEnv sets the seed of TestModelCrowd, which otherwise is random.
const seedEnv = "GODAT_MODEL_SEED"

// TestModelCrowd makes the model's calls from many goroutines at once, without waiting for results.
// The effect of a single call is not known, but these rules must hold for all calls: each post
// completes exactly once with its cookie (a suppressed one at most once, and only if it fails), the
// completions of one poster come in its order, messages arrive whole and in order, each connection
// has one outcome and one end, all counts return to zero, and nothing hangs.
func TestModelCrowd(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		if !udat.DeviceAttr(open(t, dev)).Acknowledged {
			t.Skip("the crowd's devices complete requests when the peer has taken them")
		}
		seed := rand.Uint64()
		if env := os.Getenv(seedEnv); env != "" {
			var err error
			seed, err = strconv.ParseUint(env, 10, 64)
			assert.NilError(t, err)
		}
		t.Logf("%s=%d starts the same draws again", seedEnv, seed)
		cycles := 30
		if raceEnabled || testing.Short() {
			cycles = 10
		}
		if dev != "mem0" {
			cycles = 6
		}
		c := newCrowd(t, dev, seed)
		c.run(cycles)
		c.close()
	})
}

// crowd is one adapter with all goroutines that use it.
type crowd struct {
	t        *testing.T
	ia       *udat.IA
	pz       *udat.PZ
	seed     uint64
	exact    bool // the device reports how many receives an endpoint has taken from a shared queue
	pairs    []*crowdPair
	ends     []*crowdEnd
	takers   []*taker
	cno      *udat.CNO
	notified []*taker // take events only when the notification object is triggered
	posters  []*crowdPoster
	srq      *udat.SRQ
	srqLoad  atomic.Int64 // receives on the shared queue that have not completed

	stopPosting atomic.Bool
	stopTaking  atomic.Bool
	settings    atomic.Int64 // number of watermarks set: each makes at most one event
	marks       atomic.Int64 // watermark events
	draws       atomic.Uint64
}

// crowdEnd is one place for an endpoint with its dispatchers.
type crowdEnd struct {
	c                   *crowd
	name                string
	recv, request, conn *taker
	srq                 *udat.SRQ
	local, target       *udat.LMR
	window              *udat.RMR // nil: the device has none
	conns               chan udat.Event
	load                atomic.Int64 // posted, and the event has not been taken

	mu   sync.RWMutex // held for reading by posters, for writing while the endpoint is replaced
	ep   *udat.EP     // nil: none
	peer *crowdEnd    // whose memory its RDMA goes to

	heard    sync.Mutex
	messages map[uint64]uint64 // by poster: the number of the latest message received from it
}

// Each queue holds few operations, each dispatcher far more events than the ends leave untaken.
const (
	crowdQueue = 16
	crowdLoad  = 400
	crowdQLen  = 2048
	crowdSlot  = 64
	crowdSlots = 1024
	crowdTime  = 3 * time.Second
)

func (c *crowd) rand() *rand.Rand { return rand.New(rand.NewPCG(c.seed, c.draws.Add(1))) }

func newCrowd(t *testing.T, dev string, seed uint64) *crowd {
	ia := open(t, dev)
	c := &crowd{t: t, ia: ia, seed: seed, exact: udat.DeviceAttr(ia).SRQExactCounts}
	var err error
	c.pz, err = ia.CreatePZ()
	assert.NilError(t, err)
	c.cno, err = ia.CreateCNO(nil)
	assert.NilError(t, err)
	if udat.DeviceAttr(ia).MaxSRQ > 0 {
		c.srq, err = ia.CreateSRQ(c.pz, udat.SRQAttr{MaxRecvDTOs: 4 * crowdQueue, MaxRecvIOV: 2})
		assert.NilError(t, err)
	}
	c.addPair("plain", nil, true)
	if c.srq != nil {
		c.addPair("shared", c.srq, false)
	}
	return c
}

// addPair makes two ends, a and b, that connect with each other. With provided it also makes an end
// c, for endpoints that the provider makes instead of b.
func (c *crowd) addPair(name string, srq *udat.SRQ, provided bool) {
	p := &crowdPair{c: c, name: name}
	var err error
	p.cr, err = c.ia.CreateEVD(64, udat.EVDCR, nil)
	assert.NilError(c.t, err)
	_, p.consumer, err = c.ia.CreatePSPAny(p.cr, udat.PSPConsumer)
	assert.NilError(c.t, err)
	p.a, p.b = c.addEnd(name+" a", srq), c.addEnd(name+" b", srq)
	p.a.create()
	p.b.create()
	if provided {
		_, p.provider, err = c.ia.CreatePSPAny(p.cr, udat.PSPProvider)
		assert.NilError(c.t, err)
		p.c3 = c.addEnd(name+" c", nil)
	}
	c.pairs = append(c.pairs, p)
}

func (c *crowd) addEnd(name string, srq *udat.SRQ) *crowdEnd {
	e := &crowdEnd{c: c, name: name, srq: srq, conns: make(chan udat.Event, 64), messages: map[uint64]uint64{}}
	var err error
	e.local, err = c.ia.AllocLMR(c.pz, 8*crowdSlot*crowdSlots, udat.PrivAll)
	assert.NilError(c.t, err)
	e.target, err = c.ia.AllocLMR(c.pz, crowdSlot, udat.PrivAll)
	assert.NilError(c.t, err)
	if udat.DeviceAttr(c.ia).MaxMW > 0 {
		e.window, err = c.pz.CreateRMR()
		assert.NilError(c.t, err)
	}
	// Each stream uses another way to dequeue events, so that all ways are tested: after a trigger,
	// by blocking, and by polling from two goroutines.
	e.recv = c.addTaker(e, name+" recv", udat.EVDDTO|udat.EVDSoftware, triggeredTaker)
	e.request = c.addTaker(e, name+" request", udat.EVDDTO|udat.EVDRMRBind, pollingTaker)
	e.conn = c.addTaker(e, name+" conn", udat.EVDConnection|udat.EVDSoftware, waitingTaker)
	if len(c.ends)%2 == 1 {
		e.recv = c.addTaker(e, name+" recv, waited for", udat.EVDDTO|udat.EVDSoftware, waitingTaker)
	}
	area := 0
	for range 2 {
		e.addPoster(&area, (*crowdPoster).request)
		e.addPoster(&area, (*crowdPoster).receive)
	}
	c.ends = append(c.ends, e)
	return e
}

func (e *crowdEnd) addPoster(area *int, post func(*crowdPoster, *rand.Rand) bool) {
	c := e.c
	p := &crowdPoster{end: e, id: uint64(len(c.posters) + 1), post: post, base: *area, ops: map[uint64]*crowdOp{}}
	*area += 2 * crowdSlot * crowdSlots
	c.posters = append(c.posters, p)
}

// create makes the Consumer's endpoint.
func (e *crowdEnd) create() {
	attr := udat.EPAttr{MaxRDMAReadIn: 4, MaxRecvDTOs: crowdQueue, MaxRequestDTOs: crowdQueue}
	var ep *udat.EP
	var err error
	if e.srq != nil {
		attr.MaxRecvDTOs = 0 // no hard watermark
		ep, err = e.c.ia.CreateEPWithSRQ(e.c.pz, e.recv.evd, e.request.evd, e.conn.evd, e.srq, &attr)
	} else {
		ep, err = e.c.ia.CreateEP(e.c.pz, e.recv.evd, e.request.evd, e.conn.evd, &attr)
	}
	assert.NilError(e.c.t, err)
	e.ep = ep
}

// run runs all goroutines until each pair has been connected as often as cycles says, and then
// checks the rules for the end.
func (c *crowd) run(cycles int) {
	var takers, posters, pairs sync.WaitGroup
	for _, k := range c.takers {
		k.start(&takers)
	}
	takers.Go(c.takeTriggered)
	takers.Go(c.takeAsync)
	for _, p := range c.posters {
		posters.Go(p.run)
	}
	posters.Go(c.meddle)
	for _, p := range c.pairs {
		pairs.Go(func() { p.run(cycles) })
	}
	c.joined(&pairs, "pairs")
	c.stopPosting.Store(true)
	c.joined(&posters, "posters")
	if !c.t.Failed() {
		c.balance()
	}
	c.stopTaking.Store(true)
	c.joined(&takers, "takers")
}

// joined waits for goroutines, which must end.
func (c *crowd) joined(g *sync.WaitGroup, who string) {
	done := make(chan struct{})
	go func() { g.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(3 * patience):
		c.t.Fatalf("the %s hang", who)
	}
}

// balance checks, after all connections and posters have ended, that all work has completed and
// every count is zero.
func (c *crowd) balance() {
	for _, e := range c.ends {
		if !soon(func() bool { return e.load.Load() == 0 }) {
			c.t.Errorf("%s: %d operations do not complete", e.name, e.load.Load())
		}
	}
	posted, completed, suppressed, failed := 0, 0, 0, 0
	for _, p := range c.posters {
		p.mu.Lock()
		for n, o := range p.ops {
			shared := p.end.srq != nil && o.recv
			posted++
			switch {
			case o.completions == 0 && !o.suppress && !shared:
				c.t.Errorf("%s: poster %d: operation %d has not completed", p.end.name, p.id, n)
			case o.completions == 0:
				suppressed++
			default:
				completed++
				failed += b2i(o.failed)
			}
		}
		p.mu.Unlock()
	}
	c.t.Logf("%d posts, %d completed (%d of them failed), %d without event; %d watermark events", posted, completed,
		failed, suppressed, c.marks.Load())
	rule.Proves(c.t, "POST-03", "EP-DISC-02", "EVD-42", "EVD-DEQ-05", "GEN-10", "CNO-08")
	for _, e := range c.ends {
		if e.ep == nil {
			continue
		}
		var recvIdle, requestIdle bool
		if !soon(func() bool {
			var err error
			_, recvIdle, requestIdle, err = e.ep.GetStatus()
			return err == nil && recvIdle && requestIdle
		}) {
			c.t.Errorf("%s: receives idle %v, requests idle %v", e.name, recvIdle, requestIdle)
		}
		if n, span, err := e.ep.RecvQuery(); err != nil || n > 0 || span > 0 {
			c.t.Errorf("%s: %d receives in a span of %d: %v", e.name, n, span, err)
		}
	}
	rule.Proves(c.t, "EP-STATUS-02", "EP-STATUS-03", "EP-RECVQ-12")
	if c.srq != nil {
		c.balanceShared()
	}
	if got, most := c.marks.Load(), c.settings.Load(); got > most {
		c.t.Errorf("%d watermark events for %d settings", got, most)
	}
}

// balanceShared checks that the shared queue holds exactly the receives that no endpoint has taken.
func (c *crowd) balanceShared() {
	want := int(c.srqLoad.Load())
	var p udat.SRQParam
	if !soon(func() bool {
		var err error
		p, err = c.srq.Query()
		return err == nil && p.OutstandingDTOCount == want && (p.AvailableDTOCount == want || !c.exact)
	}) {
		c.t.Errorf("the shared queue has %d available and %d outstanding, want %d", p.AvailableDTOCount,
			p.OutstandingDTOCount, want)
	}
	rule.Proves(c.t, "SRQ-POST-01", "SRQ-POST-03", "SRQ-QUERY-01", "EPST-41")
}

// close frees all objects in the recommended order, which succeeds only if no object is still in
// use.
func (c *crowd) close() {
	if c.t.Failed() {
		return
	}
	free := func(what string, err error) {
		if err != nil {
			c.t.Errorf("free %s: %v", what, err)
		}
	}
	for _, p := range c.pairs {
		free(p.name+" service point", p.consumer.Free())
		if p.provider != nil {
			free(p.name+" provider point", p.provider.Free())
		}
		free(p.name+" requests", p.cr.Free())
	}
	for _, e := range c.ends {
		if e.ep != nil {
			free(e.name, e.ep.Free())
		}
		if e.window != nil {
			free(e.name+" window", e.window.Free())
		}
		free(e.name+" memory", errors.Join(e.local.Free(), e.target.Free()))
	}
	if c.srq != nil {
		free("shared queue", c.srq.Free())
	}
	for _, k := range c.takers {
		free(k.name, k.evd.Free())
	}
	free("notification object", c.cno.Free())
	free("zone", c.pz.Free())
	free("adapter", c.ia.Close(udat.CloseGraceful))
	rule.Proves(c.t, "OBJ-12", "RMR-BIND-12", "LMR-FREE-01", "CNO-FREE-01")
}

// meddle queries and changes objects that other goroutines use.
func (c *crowd) meddle() {
	r := c.rand()
	for !c.stopPosting.Load() {
		e := c.ends[r.IntN(len(c.ends))]
		switch r.IntN(7) {
		case 0:
			evd := []*taker{e.recv, e.request, e.conn}[r.IntN(3)].evd
			if err := evd.Resize(crowdQLen + r.IntN(100)); err != nil {
				c.t.Errorf("%s: resize: %v", e.name, err)
			}
		case 1: // a blocked call ends, and its taker calls again
			if err := errors.Join(e.conn.evd.SetUnwaitable(), e.conn.evd.ClearUnwaitable()); err != nil {
				c.t.Errorf("%s: unwaitable: %v", e.name, err)
			}
		case 2:
			e.withEP(func(ep *udat.EP) {
				if n, span, err := ep.RecvQuery(); err != nil || span < n {
					c.t.Errorf("%s: %d receives in a span of %d: %v", e.name, n, span, err)
				}
			})
		case 3:
			e.withEP(func(ep *udat.EP) {
				if _, err := ep.Query(); err != nil {
					c.t.Errorf("%s: query: %v", e.name, err)
				}
			})
		case 4:
			if e.srq == nil || c.exact {
				e.withEP(func(ep *udat.EP) {
					c.settings.Add(1)
					if err := ep.SetWatermark(r.IntN(crowdQueue), udat.WatermarkInfinite); err != nil {
						c.t.Errorf("%s: watermark: %v", e.name, err)
					}
				})
			}
		case 5:
			if c.srq != nil {
				c.settings.Add(1)
				if err := c.srq.SetLW(r.IntN(crowdQueue)); err != nil {
					c.t.Errorf("low watermark: %v", err)
				}
			}
		case 6:
			if err := e.recv.evd.PostSE(udat.Event{Number: udat.EventSoftware}); err != nil {
				c.t.Errorf("%s: software event: %v", e.name, err)
			}
		}
		time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
	}
}

// withEP calls the function with the current endpoint, if there is one. The endpoint is not
// replaced meanwhile.
func (e *crowdEnd) withEP(call func(*udat.EP)) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.ep != nil {
		call(e.ep)
	}
}

// message fills the data of a Send: the number of the poster, the number of the message, and a
// pattern.
func message(b []byte, poster, number uint64) {
	for i := range b {
		b[i] = byte(number) + byte(i)
	}
	if len(b) >= 16 {
		binary.LittleEndian.PutUint64(b, poster)
		binary.LittleEndian.PutUint64(b[8:], number)
	}
}

// hears checks a received message: it is complete, and later than all earlier messages of its
// poster.
func (e *crowdEnd) hears(b []byte) {
	if len(b) < 16 {
		return
	}
	poster, number := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	want := make([]byte, len(b))
	message(want, poster, number)
	if !bytes.Equal(b, want) {
		e.c.t.Errorf("%s: a message is\n%x, want\n%x", e.name, b, want)
		return
	}
	e.heard.Lock()
	defer e.heard.Unlock()
	if number <= e.messages[poster] {
		e.c.t.Errorf("%s: message %d of poster %d comes after %d", e.name, number, poster, e.messages[poster])
	}
	e.messages[poster] = number
}
