package udat_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// stressTime is how long each test of races runs.
const stressTime = 700 * time.Millisecond

// crew runs functions over and over until it is told to stop.
type crew struct {
	group sync.WaitGroup
	quit  chan struct{}
}

func newCrew() *crew { return &crew{quit: make(chan struct{})} }

func (c *crew) do(step func()) {
	c.group.Go(func() {
		for {
			select {
			case <-c.quit:
				return
			default:
				step()
				runtime.Gosched()
			}
		}
	})
}

func (c *crew) stop() {
	close(c.quit)
	c.group.Wait()
}

// refusal reports whether a race can cause the error.
func refusal(err error) bool {
	for _, allowed := range []error{udat.ErrTimeoutExpired, udat.ErrQueueEmpty, udat.ErrQueueFull, errWaiter,
		errUnwaitable, udat.ErrInterruptedCall} {
		if errors.Is(err, allowed) {
			return true
		}
	}
	return false
}

// tally counts dequeued events.
type tally struct {
	t         *testing.T
	soft, dto atomic.Int64
}

func (c *tally) count(ev udat.Event, err error) {
	switch {
	case err == nil && ev.Number == udat.EventSoftware:
		c.soft.Add(1)
	case err == nil && ev.Number == udat.EventDTOCompletion && ev.Status == udat.DTOSuccess:
		c.dto.Add(1)
	case err == nil:
		c.t.Errorf("unexpected: %s", describe(ev))
	case !refusal(err):
		c.t.Error(err)
	}
}

// TestEVDRaces makes all calls on one dispatcher at once. No event is lost or reported twice, and
// every blocked call is woken.
func TestEVDRaces(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for _, flags := range []udat.CompletionFlags{0, udat.CompletionSolicitedWait} {
			streams := udat.EVDDTO | udat.EVDSoftware
			if flags != 0 {
				streams = udat.EVDDTO
			}
			raceOn(t, dev, streams, flags, setup{unkept: true})
			raceOn(t, dev, streams, flags, setup{opts: []udat.Option{udat.WithPollInterval(100 * time.Microsecond)}})
		}
		rule.Proves(t, "EVD-42", "EVD-DEQ-05", "EVD-RESIZE-01")
	})
}

func raceOn(t *testing.T, dev string, streams udat.EVDFlags, flags udat.CompletionFlags, s setup) {
	a, b := newEnd(t, dev, s), newEnd(t, dev, s)
	evd := b.evd(32, streams)
	assert.NilError(t, b.ep.Free())
	var err error
	b.ep, err = b.ia.CreateEP(b.pz, evd, b.request, b.conn, &udat.EPAttr{RecvCompletionFlags: flags})
	assert.NilError(t, err)
	connect(t, a, b)
	cnos := []*udat.CNO{newCNO(t, b.ia, nil), newCNO(t, b.ia, nil), nil}
	taken := &tally{t: t}
	var posted, sent, received atomic.Int64
	crew := newCrew()
	if streams&udat.EVDSoftware != 0 {
		crew.do(func() {
			if err := evd.PostSE(udat.Event{Number: udat.EventSoftware}); err == nil {
				posted.Add(1)
			} else if !refusal(err) {
				t.Error(err)
			}
		})
	}
	crew.do(func() {
		if received.Load()-taken.dto.Load() > 100 {
			return // a queue that overflows keeps thousands of events
		}
		if err := b.ep.PostRecv(b.iov(0, 8), 0, 0); err == nil {
			received.Add(1)
		} else if !errors.Is(err, udat.ErrInsufficientResources) {
			t.Error(err)
		}
	})
	crew.do(func() {
		if sent.Load() >= received.Load() {
			return
		}
		how := udat.CompletionSuppress | udat.CompletionFlags(rand.IntN(2))*udat.CompletionSolicitedWait
		if err := a.ep.PostSend(a.iov(0, 8), 0, how); err == nil {
			sent.Add(1)
		} else if !errors.Is(err, udat.ErrInsufficientResources) {
			t.Error(err)
		}
	})
	threshold := func() int {
		if flags != 0 {
			return 1
		}
		return 1 + rand.IntN(3)
	}
	brief := func() time.Duration { return time.Duration(rand.IntN(1000)) * time.Microsecond }
	for range 2 {
		crew.do(func() {
			ev, _, err := evd.Wait(brief(), threshold())
			taken.count(ev, err)
		})
	}
	crew.do(func() {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(brief(), cancel)
		ev, _, err := evd.WaitContext(ctx, threshold())
		taken.count(ev, err)
	})
	batch := make([]udat.Event, 3)
	crew.do(func() {
		n, err := evd.DequeueBatch(batch)
		for i := range n {
			taken.count(batch[i], nil)
		}
		if err != nil {
			taken.count(udat.Event{}, err)
		}
		time.Sleep(brief())
	})
	for _, cno := range cnos[:2] {
		crew.do(func() {
			if _, err := cno.Wait(brief()); err != nil && !refusal(err) {
				t.Error(err)
			}
		})
	}
	crew.do(func() {
		time.Sleep(brief())
		var err error
		switch rand.IntN(6) {
		case 0:
			err = evd.SetUnwaitable()
		case 1:
			err = evd.ClearUnwaitable()
		case 2:
			err = evd.Disable()
		case 3:
			err = evd.Enable()
		case 4:
			err = evd.ModifyCNO(cnos[rand.IntN(3)])
		case 5:
			if err = evd.Resize(30 + rand.IntN(40)); errors.Is(err, udat.ErrInvalidState) {
				err = nil
			}
		}
		if err != nil {
			t.Error(err)
		}
		evd.Query()
		b.ep.RecvQuery()
	})
	time.Sleep(stressTime)
	crew.stop()
	assert.NilError(t, evd.ClearUnwaitable())
	until(t, "every event is taken", func() bool {
		for {
			ev, err := evd.Dequeue()
			taken.count(ev, err)
			if err != nil {
				break
			}
		}
		return taken.soft.Load() == posted.Load() && taken.dto.Load() == sent.Load()
	})
	empty(t, evd)
	assert.Assert(t, sent.Load() > 0)
	t.Logf("flags 0x%x: %d software events, %d receives", uint32(flags), posted.Load(), sent.Load())
}

// TestEVDFreeRaces frees dispatchers, objects and adapters while calls wait on them: all calls
// return.
func TestEVDFreeRaces(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		gone := func(err error) bool {
			return err == nil || refusal(err) || errors.Is(err, udat.ErrAbort) || errors.Is(err, udat.ErrInvalidHandle)
		}
		end := time.Now().Add(stressTime)
		for round := 0; round < 10 || time.Now().Before(end); round++ {
			ia, err := udat.Open(dev)
			assert.NilError(t, err)
			cno := newCNO(t, ia, func(*udat.EVD) {})
			evd, err := ia.CreateEVD(8, udat.EVDDTO|udat.EVDSoftware, cno)
			assert.NilError(t, err)
			var group sync.WaitGroup
			check := func(call func() error) {
				group.Go(func() {
					for range 1 + rand.IntN(3) {
						if err := call(); !gone(err) {
							t.Error(err)
						}
					}
				})
			}
			check(func() error { _, _, err := evd.Wait(udat.Infinite, 8); return err })
			check(func() error { _, _, err := evd.Wait(time.Millisecond, 1); return err })
			check(func() error { _, err := evd.Dequeue(); return err })
			check(func() error { return evd.PostSE(udat.Event{Number: udat.EventSoftware}) })
			check(func() error { return evd.ModifyCNO(cno) })
			check(func() error { return evd.Disable() })
			check(func() error { return evd.Enable() })
			check(func() error { _, err := cno.Wait(100 * time.Millisecond); return err })
			check(func() error {
				if _, err := cno.Wait(0); !gone(err) {
					return err
				}
				if err := cno.Free(); !errors.Is(err, udat.ErrInvalidState) {
					return err
				}
				return nil
			})
			if round%2 == 0 {
				time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
			}
			if round%3 == 0 {
				check(evd.Free)
				check(evd.Free)
			}
			check(func() error { return ia.Close(udat.CloseAbrupt) })
			check(func() error { return ia.Close(udat.CloseAbrupt) })
			done := make(chan struct{})
			go func() { group.Wait(); close(done) }()
			one(t, done)
		}
		rule.Proves(t, "EVD-WAIT-19", "EVD-FREE-03", "CNO-WAIT-05")
	})
}

// TestEVDNoLostWakeUps passes a token between two waiters many times: a single missed wake-up would
// stop the token.
func TestEVDNoLostWakeUps(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, k := range kinds {
			ia := open(t, dev)
			ping, err := ia.CreateEVD(2, k.streams, nil)
			assert.NilError(t, err)
			pong, err := ia.CreateEVD(2, k.streams, nil)
			assert.NilError(t, err)
			rounds := 500
			failed := make(chan error, 1)
			go func() {
				var err error
				for i := 0; i < rounds && err == nil; i++ {
					if _, _, err = ping.Wait(patience, 1); err == nil {
						err = pong.PostSE(udat.Event{Number: udat.EventSoftware})
					}
				}
				failed <- err
			}()
			for range rounds {
				soft(t, ping, 0)
				next(t, pong)
			}
			assert.NilError(t, one(t, failed))
		}
		a, b := pair(t, dev, setup{unkept: true})
		b.receive(0, 0)
		for i := range udat.Cookie(200) { // the same with messages
			a.receive(0, i+1)
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), i, udat.CompletionSuppress))
			completion(t, b.recv, i)
			b.receive(0, i+1)
			assert.NilError(t, b.ep.PostSend(b.iov(0, 8), i, udat.CompletionSuppress))
			completion(t, a.recv, i+1)
		}
		rule.Proves(t, "EVD-POSTSE-02", "EVD-20")
	})
}
