package udat_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
)

func TestEVDCreate(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		for _, streams := range []udat.EVDFlags{udat.EVDSoftware, udat.EVDCR, udat.EVDDTO, udat.EVDConnection,
			udat.EVDRMRBind, udat.EVDDefault, udat.EVDDefault | udat.EVDSoftware} {
			for _, qlen := range []int{1, 7, 100} {
				evd, err := ia.CreateEVD(qlen, streams, nil)
				assert.NilError(t, err)
				p, err := evd.Query()
				assert.NilError(t, err)
				assert.Equal(t, p.IA, ia)
				assert.Assert(t, p.QLen >= qlen)
				assert.Equal(t, p.Streams, streams)
				assert.Equal(t, p.State, udat.EVDEnabled|udat.EVDWaitable|udat.EVDConfigNotify)
				assert.Assert(t, p.CNO == nil)
				empty(t, evd)
				assert.NilError(t, evd.Free())
			}
		}
		rule.Proves(t, "EVD-CREATE-01", "EVD-CREATE-06", "EVD-05", "EVD-04", "EVD-02")
		limit := udat.DeviceAttr(ia).MaxCQE
		for _, c := range []struct {
			qlen    int
			streams udat.EVDFlags
			want    error
		}{
			{0, udat.EVDDTO, udat.WithSubtype(udat.InvalidParameter, udat.SubArg2)},
			{-1, udat.EVDDTO, udat.WithSubtype(udat.InvalidParameter, udat.SubArg2)},
			{math.MinInt, udat.EVDSoftware, udat.WithSubtype(udat.InvalidParameter, udat.SubArg2)},
			{limit + 1, udat.EVDDTO, udat.WithSubtype(udat.InsufficientResources, udat.SubResourceTEVD)},
			{limit + 1, udat.EVDSoftware, udat.WithSubtype(udat.InsufficientResources, udat.SubResourceTEVD)},
			{4, 0, udat.WithSubtype(udat.InvalidParameter, udat.SubArg4)},
			{4, udat.EVDDTO | 0x200, udat.WithSubtype(udat.InvalidParameter, udat.SubArg4)},
			{4, 0x2, udat.WithSubtype(udat.InvalidParameter, udat.SubArg4)},
		} {
			evd, err := ia.CreateEVD(c.qlen, c.streams, nil)
			assert.ErrorIs(t, err, c.want)
			assert.Assert(t, evd == nil)
		}
		rule.Proves(t, "EVD-CREATE-03", "EVD-CREATE-04", "EVD-01")
		var none *udat.IA
		_, err := none.CreateEVD(4, udat.EVDDTO, nil)
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleIA))
		assert.NilError(t, ia.Close(udat.CloseGraceful)) // the failed calls have left no object
		_, err = ia.CreateEVD(4, udat.EVDDTO, nil)
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidHandle, udat.SubHandleIA))
		rule.Proves(t, "EVD-CREATE-02")
	})
}

func TestEVDCreateExhausted(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		nicOf(t, ia).Exhaust(softnic.CQs, 1)
		_, err := ia.CreateEVD(4, udat.EVDDTO, nil)
		assert.ErrorIs(t, err, udat.WithSubtype(udat.InsufficientResources, udat.SubResourceTEVD))
		assert.ErrorIs(t, err, fabric.ErrResources)
		evd, err := ia.CreateEVD(4, udat.EVDDTO, nil)
		assert.NilError(t, err)
		assert.NilError(t, evd.Free())
		nicOf(t, ia).Exhaust(softnic.CQs, 1)
		evd, err = ia.CreateEVD(4, (udat.EVDDefault|udat.EVDSoftware)&^(udat.EVDDTO|udat.EVDRMRBind), nil)
		assert.NilError(t, err, "what takes no completions needs no completion queue")
		assert.NilError(t, evd.Free())
		assert.NilError(t, ia.Close(udat.CloseGraceful))
		rule.Proves(t, "EVD-CREATE-05")
	})
}

// TestEVDCreateLargest: a dispatcher may be as long as the device's limit.
func TestEVDCreateLargest(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		ia := lacking(t, dev, func(a *fabric.Attr) { a.MaxCQE = 100 })
		evd, err := ia.CreateEVD(100, udat.EVDDefault, nil)
		assert.NilError(t, err)
		assert.Equal(t, queueLength(t, evd), 100)
		_, err = ia.CreateEVD(101, udat.EVDDefault, nil)
		refused(t, err, udat.InsufficientResources, udat.SubResourceTEVD)
	})
}

func TestEVDQuery(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		pz, err := ia.CreatePZ()
		assert.NilError(t, err)
		cno, err := ia.CreateCNO(nil)
		assert.NilError(t, err)
		evd, err := ia.CreateEVD(5, udat.EVDDTO, cno)
		assert.NilError(t, err)
		sees := func(want udat.EVDState) {
			t.Helper()
			p, err := evd.Query()
			assert.NilError(t, err)
			assert.Equal(t, p.State, want, "%#x", uint32(p.State))
		}
		p, err := evd.Query()
		assert.NilError(t, err)
		assert.Equal(t, p.IA, ia)
		assert.Equal(t, p.CNO, cno)
		assert.Equal(t, p.Streams, udat.EVDDTO)
		assert.Assert(t, p.QLen >= 5)
		var none *udat.EVD
		_, err = none.Query()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "EVD-QUERY-01", "EVD-CREATE-01", "GEN-07")
		for _, c := range []struct {
			do    func() error
			state udat.EVDState
		}{
			{evd.Disable, udat.EVDDisabled | udat.EVDWaitable},
			{evd.SetUnwaitable, udat.EVDDisabled | udat.EVDUnwaitable},
			{evd.SetUnwaitable, udat.EVDDisabled | udat.EVDUnwaitable},
			{evd.Enable, udat.EVDEnabled | udat.EVDUnwaitable},
			{evd.Enable, udat.EVDEnabled | udat.EVDUnwaitable},
			{evd.ClearUnwaitable, udat.EVDEnabled | udat.EVDWaitable},
		} {
			assert.NilError(t, c.do())
			sees(c.state | udat.EVDConfigNotify)
		}
		assert.Equal(t, [7]udat.EVDState{udat.EVDEnabled, udat.EVDDisabled, udat.EVDWaitable, udat.EVDUnwaitable,
			udat.EVDConfigNotify, udat.EVDConfigSolicited, udat.EVDConfigThreshold},
			[7]udat.EVDState{0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x30})
		rule.Proves(t, "EVD-QUERY-02", "EVD-07", "EVD-SETUNW-01", "EVD-CLRUNW-01")
		for _, c := range []struct {
			flags udat.CompletionFlags
			state udat.EVDState
		}{
			{0, udat.EVDConfigNotify},
			{udat.CompletionUnsignalled, udat.EVDConfigNotify},
			{udat.CompletionSolicitedWait, udat.EVDConfigSolicited},
			{udat.CompletionEVDThreshold, udat.EVDConfigThreshold},
		} {
			ep, err := ia.CreateEP(pz, evd, nil, nil, &udat.EPAttr{RecvCompletionFlags: c.flags})
			assert.NilError(t, err)
			sees(udat.EVDEnabled | udat.EVDWaitable | c.state)
			assert.NilError(t, ep.Free())
			sees(udat.EVDEnabled | udat.EVDWaitable | udat.EVDConfigNotify)
			if c.flags == udat.CompletionSolicitedWait {
				continue // for receives only
			}
			ep, err = ia.CreateEP(pz, nil, evd, nil, &udat.EPAttr{RequestCompletionFlags: c.flags})
			assert.NilError(t, err)
			sees(udat.EVDEnabled | udat.EVDWaitable | c.state)
			assert.NilError(t, ep.Free())
		}
		rule.Proves(t, "EVD-08", "EVD-QUERY-02")
	})
}

// TestEVDFreeMeetsCalls: a call that runs concurrently with Free succeeds or returns InvalidHandle.
func TestEVDFreeMeetsCalls(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		ia := open(t, dev)
		const n = 20
		for i := range 100 {
			evd, err := ia.CreateEVD(n, udat.EVDSoftware|udat.EVDDTO, nil)
			assert.NilError(t, err)
			for range n {
				soft(t, evd, nil)
			}
			andBack := func(ev udat.Event, err error) error {
				switch {
				case err != nil:
					return err
				case ev.Number != udat.EventSoftware:
					return errors.New("no event and no error")
				}
				return evd.PostSE(ev)
			}
			var calls sync.WaitGroup
			for _, call := range []func() error{
				func() error { return andBack(evd.Dequeue()) },
				func() error { return andBack(evd.Dequeue()) },
				func() error { ev, _, err := evd.Wait(0, 1); return andBack(ev, err) },
				func() error { return evd.Resize(n + i) },
			} {
				calls.Go(func() {
					for {
						if err := call(); errors.Is(err, udat.ErrInvalidHandle) {
							return
						} else if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			time.Sleep(100 * time.Microsecond)
			assert.NilError(t, evd.Free())
			calls.Wait()
		}
	})
}

func TestEVDFree(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		psp := listen(t, e)
		inUse := udat.WithSubtype(udat.InvalidState, udat.SubStateEVDInUse)
		for _, evd := range []*udat.EVD{e.recv, e.request, e.conn, e.cr, e.ia.AsyncEVD()} {
			assert.ErrorIs(t, evd.Free(), inUse)
			empty(t, evd) // nothing has changed
		}
		rule.Proves(t, "EVD-FREE-02", "EVD-FREE-04")
		assert.NilError(t, psp.Free())
		assert.NilError(t, e.ep.Free())
		for _, evd := range []*udat.EVD{e.recv, e.request, e.conn, e.cr} {
			assert.NilError(t, evd.Free())
		}
		assert.ErrorIs(t, e.ia.AsyncEVD().Free(), inUse)
		evd := e.evd(4, udat.EVDSoftware|udat.EVDDTO)
		soft(t, evd, 0)
		assert.NilError(t, evd.Free())
		rule.Proves(t, "OBJ-08")
		_, err := evd.Dequeue()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		_, _, err = evd.Wait(0, 1)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		for _, call := range []func() error{evd.Free, evd.Enable, evd.Disable, evd.SetUnwaitable, evd.ClearUnwaitable} {
			assert.ErrorIs(t, call(), udat.ErrInvalidHandle)
		}
		assert.ErrorIs(t, evd.Resize(4), udat.ErrInvalidHandle)
		assert.ErrorIs(t, evd.ModifyCNO(nil), udat.ErrInvalidHandle)
		assert.ErrorIs(t, evd.PostSE(udat.Event{Number: udat.EventSoftware}), udat.ErrInvalidHandle)
		_, err = evd.Query()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		_, err = e.ia.CreateEP(e.pz, evd, nil, nil, nil)
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "EVD-FREE-05", "GEN-02", "GEN-03", "EVD-ENABLE-03", "EVD-SETUNW-03", "EVD-MODCNO-04", "EVD-DEQ-02",
			"EVD-POSTSE-05", "EVD-RESIZE-03")
	})
}

func TestEVDDequeue(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		empty(t, evd)
		rule.Proves(t, "EVD-DEQ-01")
		assert.NilError(t, evd.SetUnwaitable())
		assert.NilError(t, evd.Disable())
		for i := range 6 {
			soft(t, evd, i)
		}
		ev, err := evd.Dequeue()
		assert.NilError(t, err)
		assert.Equal(t, ev.Number, udat.EventSoftware)
		assert.Equal(t, ev.EVD, evd)
		assert.Equal(t, ev.Software, any(0))
		batch := make([]udat.Event, 3)
		n, err := evd.DequeueBatch(batch)
		assert.NilError(t, err)
		assert.Equal(t, n, 3)
		for i, ev := range batch {
			assert.Equal(t, ev.Software, any(i+1))
		}
		rule.Proves(t, "EVD-DEQ-01", "EVD-DEQ-03", "EVD-DEQ-04")
		n, err = evd.DequeueBatch(batch)
		assert.NilError(t, err)
		assert.Equal(t, n, 2)
		_, err = evd.DequeueBatch(batch)
		assert.ErrorIs(t, err, udat.ErrQueueEmpty)
		_, err = evd.DequeueBatch(nil)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		for _, looks := range []int{0, -1, udat.MaxPolls + 1} {
			_, err = evd.DequeueSpin(batch, looks)
			refused(t, err, udat.InvalidParameter, udat.SubArg3)
		}
		var none *udat.EVD
		_, err = none.Dequeue()
		assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		rule.Proves(t, "EVD-DEQ-02")
	})
}

// TestEVDEachEventOnce dequeues events from many goroutines at once.
func TestEVDEachEventOnce(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		const n, posters, takers = 600, 4, 4
		ia := open(t, dev)
		evd, err := ia.CreateEVD(64, udat.EVDSoftware|udat.EVDDTO, nil)
		assert.NilError(t, err)
		var mu sync.Mutex
		seen := map[any]int{}
		var posting, taking sync.WaitGroup
		for p := range posters {
			posting.Go(func() {
				for i := p; i < n; i += posters {
					for {
						err := evd.PostSE(udat.Event{Number: udat.EventSoftware, Software: i})
						if err == nil {
							break
						}
						if !errors.Is(err, udat.ErrQueueFull) {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for range takers {
			taking.Go(func() {
				for {
					ev, _, err := evd.Wait(patience, 1)
					if errors.Is(err, errWaiter) {
						ev, err = evd.Dequeue()
					}
					switch {
					case errors.Is(err, errUnwaitable):
						return
					case errors.Is(err, udat.ErrQueueEmpty), errors.Is(err, errWaiter):
						continue
					case err != nil:
						t.Error(err)
						return
					}
					mu.Lock()
					seen[ev.Software]++
					mu.Unlock()
				}
			})
		}
		posting.Wait()
		until(t, "all events are taken", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) == n
		})
		assert.NilError(t, evd.SetUnwaitable())
		taking.Wait()
		for i, times := range seen {
			assert.Equal(t, times, 1, "%v", i)
		}
		empty(t, evd)
		rule.Proves(t, "EVD-42", "EVD-DEQ-05", "EVD-POSTSE-06")
		async, err := ia.AsyncEVD().Dequeue()
		assert.ErrorIs(t, err, udat.ErrQueueEmpty, "%s", describe(async))
		rule.Proves(t, "EVD-51")
	})
}

func TestEVDPostSE(t *testing.T) {
	onEachKind(t, func(t *testing.T, ia *udat.IA, evd *udat.EVD) {
		payload := &struct{ n int }{7}
		mine := udat.Event{Number: udat.EventSoftware, Software: payload, Cookie: 9}
		assert.NilError(t, evd.PostSE(mine))
		mine.Software = nil
		ev := expect(t, evd, udat.EventSoftware)
		assert.Equal(t, ev.Software, any(payload))
		assert.Equal(t, ev.EVD, evd)
		rule.Proves(t, "EVD-POSTSE-01", "EVD-POSTSE-03")
		for _, number := range []udat.EventNumber{0, udat.EventDTOCompletion, udat.EventConnectionEstablished,
			udat.EventAsyncEVDOverflow, 0x10002} {
			assert.ErrorIs(t, evd.PostSE(udat.Event{Number: number}), udat.ErrInvalidParameter)
		}
		deaf, err := ia.CreateEVD(4, udat.EVDDefault, nil)
		assert.NilError(t, err)
		assert.ErrorIs(t, deaf.PostSE(mine), udat.ErrInvalidParameter)
		var none *udat.EVD
		assert.ErrorIs(t, none.PostSE(mine), udat.ErrInvalidHandle)
		empty(t, evd)
		rule.Proves(t, "EVD-POSTSE-05")
		n := queueLength(t, evd)
		for i := range n {
			soft(t, evd, i)
		}
		for range 3 {
			assert.ErrorIs(t, evd.PostSE(udat.Event{Number: udat.EventSoftware}), udat.ErrQueueFull)
		}
		for i := range n {
			assert.Equal(t, next(t, evd).Software, any(i))
		}
		empty(t, evd)
		empty(t, ia.AsyncEVD())
		rule.Proves(t, "EVD-POSTSE-04", "EVD-51")
	})
}

// TestEVDPostSECountsDevice: completions that are still on the device occupy places like queued
// events.
func TestEVDPostSECountsDevice(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{unkept: true, qlen: 4, streams: udat.EVDDefault | udat.EVDSoftware})
		onTheDevice(t, a, b, 4)
		refused(t, a.request.PostSE(udat.Event{Number: udat.EventSoftware}), udat.QueueFull)
		completion(t, a.request, 0)
		soft(t, a.request, "last")
		for i := range udat.Cookie(3) {
			completion(t, a.request, i+1)
		}
		assert.Equal(t, expect(t, a.request, udat.EventSoftware).Software, any("last"))
		empty(t, a.ia.AsyncEVD())
		rule.Proves(t, "EVD-POSTSE-04")
	})
}

// TestEVDOverrun shows what still works on a dispatcher whose completion queue has overrun.
func TestEVDOverrun(t *testing.T) {
	onSoftware(t, func(t *testing.T, dev string) {
		a := newEnd(t, dev, setup{})
		faults := a.nic()
		b := newEnd(t, dev, setup{})
		connect(t, a, b)
		assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), 0))
		until(t, "the write completes", func() bool {
			_, _, idle, err := a.ep.GetStatus()
			assert.NilError(t, err)
			return idle
		})
		w := waitOn(t, a.recv, udat.Infinite, 1)
		faults.Overrun(udat.CompletionQueue(a.request))
		faults.Overrun(udat.CompletionQueue(a.recv))
		assert.ErrorIs(t, w.result(t).err, udat.ErrInvalidState)
		overflow := map[udat.Handle]bool{}
		for !overflow[a.request] || !overflow[a.recv] {
			if ev := next(t, a.ia.AsyncEVD()); ev.Number == udat.EventAsyncEVDOverflow { // or EP_BROKEN
				assert.Assert(t, !overflow[ev.Object], "told twice")
				overflow[ev.Object] = true
			}
		}
		expect(t, a.conn, udat.EventConnectionBroken)
		_, _, err := a.request.Wait(0, 1)
		assert.ErrorIs(t, err, udat.ErrInvalidState)
		ev, err := a.request.Dequeue() // what has come is not lost
		assert.NilError(t, err)
		assert.Equal(t, ev.Cookie, udat.Cookie(1))
		rule.Proves(t, "EVD-WAIT-32", "EVT-03")
	})
}
