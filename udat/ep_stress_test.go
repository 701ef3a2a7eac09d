package udat_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// mayBe lists the errors that a call may return while other calls change the endpoint.
var mayBe = []error{
	udat.ErrInvalidState, udat.ErrInvalidHandle, udat.ErrInsufficientResources, udat.ErrQueueEmpty,
	udat.ErrTimeoutExpired, udat.ErrAbort,
	udat.ErrPrivilegesViolation,
}

func tolerable(err error) bool {
	for _, e := range mayBe {
		if errorsIs(err, e) {
			return true
		}
	}
	return err == nil
}

// TestEndpointStress makes random calls on a few endpoints from several goroutines, and closes the
// adapters meanwhile: nothing crashes, hangs or leaks, and each call returns nil or an expected
// error.
func TestEndpointStress(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		for round := range 4 {
			s := setup{qlen: 64}
			if round%2 == 1 {
				s.streams = udat.EVDDTO | udat.EVDConnection | udat.EVDCR | udat.EVDRMRBind
			}
			stress(t, newEnd(t, dev, s), newEnd(t, dev, s), 500*time.Millisecond)
		}
		rule.Proves(t, "GEN-10")
	})
}

// stress also calls the functions also repeatedly, once the endpoints exist.
func stress(t *testing.T, a, b *end, d time.Duration, also ...func(rng *rand.Rand) error) {
	const endpoints = 4
	psp := listen(t, b)
	var eps [2][endpoints]atomic.Pointer[udat.EP]
	for i, e := range []*end{a, b} {
		for j := range eps[i] {
			eps[i][j].Store(e.another(nil))
		}
	}
	var wg sync.WaitGroup
	var calls atomic.Int64
	stop := make(chan struct{})
	until := func(f func(rng *rand.Rand) error) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				calls.Add(1)
				if err := f(rng); !tolerable(err) {
					t.Errorf("%v", err)
					return
				}
			}
		})
	}
	for _, f := range also {
		until(f)
	}
	for i, e := range []*end{a, b} {
		other := []*end{b, a}[i]
		some := func(rng *rand.Rand) *udat.EP { return eps[i][rng.IntN(endpoints)].Load() }
		for range 2 {
			until(func(rng *rand.Rand) error {
				ep := some(rng)
				switch rng.IntN(16) {
				case 0, 1, 2:
					return ep.PostRecv(e.iov(0, 64), 1, 0)
				case 3, 4:
					return ep.PostSend(e.iov(0, 64), 2, udat.CompletionFlags(rng.IntN(4)))
				case 5:
					return ep.PostRDMAWrite(e.iov(0, 64), 3, other.mem.RMRTriplet(0, 64), udat.CompletionSuppress)
				case 6:
					return ep.PostRDMARead(e.iov(64, 64), 4, other.mem.RMRTriplet(0, 64), 0)
				case 7:
					_, _, _, err := ep.GetStatus()
					return err
				case 8:
					_, _, err := ep.RecvQuery()
					return err
				case 9:
					return ep.SetWatermark(rng.IntN(20)-1, rng.IntN(40)-1)
				case 10:
					return ep.Disconnect(udat.CloseGraceful)
				case 11:
					return ep.Disconnect(udat.CloseAbrupt)
				case 12, 13:
					return ep.Reset()
				case 14:
					if rng.IntN(10) > 0 {
						return nil
					}
					j := rng.IntN(endpoints)
					if err := eps[i][j].Load().Free(); err != nil {
						return err
					}
					ep, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, nil)
					if err == nil {
						eps[i][j].Store(ep)
					}
					return err
				}
				return nil
			})
		}
		until(func(rng *rand.Rand) error { // takes events, and answers requests
			evds := []*udat.EVD{e.recv, e.request, e.conn, e.cr}
			ev, _, err := evds[rng.IntN(4)].Wait(time.Duration(rng.IntN(500))*time.Microsecond, 1)
			if err != nil || ev.CR == nil {
				return err
			}
			if rng.IntN(4) == 0 {
				return ev.CR.Reject(nil)
			}
			if err := ev.CR.Accept(some(rng), nil); err != nil {
				ev.CR.Reject(nil)
				return err
			}
			return nil
		})
	}
	until(func(rng *rand.Rand) error {
		return eps[0][rng.IntN(endpoints)].Load().Connect(b.ia.Addr(), psp.Qual(),
			time.Duration(1+rng.IntN(20))*time.Millisecond, nil, 0, 0)
	})
	time.Sleep(d)
	t.Logf("%d calls", calls.Load())
	closed := make(chan error, 2)
	for _, e := range []*end{a, b} {
		go func() { closed <- e.ia.Close(udat.CloseAbrupt) }()
	}
	for range 2 {
		select {
		case err := <-closed:
			assert.NilError(t, err)
		case <-time.After(patience):
			t.Fatal("the adapter does not close")
		}
	}
	close(stop)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("a call does not return")
	}
}

// TestEndpointStressFaults does the same while the fabric loses messages and fails work.
func TestEndpointStressFaults(t *testing.T) {
	onMemOutside(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{qlen: 64}), newEnd(t, dev, setup{qlen: 64})
		disturb := func(f *nicfault.Faults) func(*rand.Rand) error {
			return func(rng *rand.Rand) error {
				time.Sleep(2 * time.Millisecond)
				switch rng.IntN(6) {
				case 0:
					f.Lose(softnic.Message(rng.IntN(5)), 1)
				case 1:
					f.FailOp(1+rng.IntN(10), 9)
				case 2:
					f.FailRecv(1+rng.IntN(10), 4)
				case 3:
					f.Exhaust(softnic.Conns, 1)
				case 4:
					f.Exhaust(softnic.QPs, 1)
				case 5:
					f.Delay(time.Duration(rng.IntN(300)) * time.Microsecond)
				}
				return nil
			}
		}
		stress(t, a, b, time.Second, disturb(a.faults()), disturb(b.faults()))
	})
}
