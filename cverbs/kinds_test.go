//go:build linux && cgo

package cverbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// scene has the objects that are needed to create objects of all kinds.
type scene struct {
	ctx *Context
	pd  *PD
	cq  *CQ
	own []closer // parents that one object does not share with others, in the order of their creation

	addr netip.Addr // address of the device
}

type objectKind struct {
	name string
	make func(s *scene) (v closer, parents []closer, err error)
	fail func(s *scene) error
	use  func(v closer) error
}

var errLoop = errors.New("the loop device has none")

// crowd is a multicast group.
var crowd = GID(netip.MustParseAddr("::ffff:239.1.2.3").As16())

// attached is a queue pair whose Close first leaves the group. It does so again if a concurrent
// call joins the group again. Each has a group of its own: if one queue pair of soft-RoCE joins a
// group while the last one of another leaves it, the kernel may count the first as attached for
// ever, and then Close and Detach both fail.
type attached struct{ *QP }

func (a attached) group() GID {
	n := a.Num()
	return GID(netip.AddrFrom4([4]byte{239, byte(n >> 16), byte(n >> 8), byte(n)}).As16())
}

func (a attached) Close() error {
	for end := soon(); ; {
		leave := a.DetachMulticast(a.group(), 0) // of many concurrent calls at most one succeeds
		if err := a.QP.Close(); !errors.Is(err, syscall.EBUSY) {
			return err
		} else if time.Now().After(end) {
			return errors.Join(err, leave)
		}
	}
}

// id creates an id that is bound to the device.
func (s *scene) id(ps PortSpace) (*CMID, []closer, error) {
	ch, err := CreateEventChannel()
	if err != nil {
		return nil, nil, err
	}
	s.own = append(s.own, ch)
	id, err := ch.CreateID(ps)
	if err != nil {
		return nil, nil, err
	}
	if err := id.BindAddr(netip.AddrPortFrom(s.addr, 0)); err != nil {
		return nil, nil, errors.Join(err, id.Close())
	}
	return id, []closer{ch}, nil
}

// kinds lists the kinds of objects, each with three functions: one creates an object, one attempts
// a creation that must fail, and one makes a call that may run at the same time as Close.
var kinds = []objectKind{
	{"opened device",
		func(s *scene) (closer, []closer, error) {
			v, err := OpenDevice(s.ctx.Name())
			return v, nil, err
		},
		func(*scene) error { _, err := OpenDevice("no-such-device"); return err },
		func(v closer) error { _, err := v.(*Context).QueryPort(1); return err }},
	{"protection domain",
		func(s *scene) (closer, []closer, error) {
			v, err := s.ctx.AllocPD()
			return v, []closer{s.ctx}, err
		},
		func(*scene) error { _, err := (&Context{}).AllocPD(); return err }, nil},
	{"region",
		func(s *scene) (closer, []closer, error) {
			v, err := s.pd.RegMR(make([]byte, 1<<16), AccessLocalWrite)
			return v, []closer{s.pd}, err
		},
		func(s *scene) error { _, err := s.pd.RegMR(make([]byte, 8), AccessRemoteWrite); return err },
		func(v closer) error { return v.(*MR).Rereg(Rereg{Flags: ReregAccess}) }},
	{"completion channel",
		func(s *scene) (closer, []closer, error) {
			v, err := s.ctx.CreateCompChannel()
			return v, []closer{s.ctx}, err
		},
		func(*scene) error { _, err := (&Context{}).CreateCompChannel(); return err },
		func(v closer) error { _, err := v.(*CompChannel).Wait(time.Now().Add(time.Millisecond)); return err }},
	{"completion queue",
		func(s *scene) (closer, []closer, error) {
			v, err := s.ctx.CreateCQ(8, nil, 0)
			return v, []closer{s.ctx}, err
		},
		func(s *scene) error { _, err := s.ctx.CreateCQ(1<<30, nil, 0); return err },
		func(v closer) error { _, err := v.(*CQ).Poll(make([]WC, 1)); return err }},
	{"shared receive queue",
		func(s *scene) (closer, []closer, error) {
			v, err := s.pd.CreateSRQ(SRQInit{MaxWR: 8, MaxSGE: 1})
			return v, []closer{s.pd}, err
		},
		func(s *scene) error { _, err := s.pd.CreateSRQ(SRQInit{MaxWR: 1 << 30, MaxSGE: 1}); return err },
		func(v closer) error { _, err := v.(*SRQ).PostRecv([]RecvWR{{}}, nil); return err }},
	{"address handle",
		func(s *scene) (closer, []closer, error) {
			gid, _, err := s.ctx.BestGID(1)
			if err != nil {
				return nil, nil, err
			}
			v, err := s.pd.CreateAH(AHAttr{Port: 1, IsGlobal: true, DGID: gid.GID, SGIDIndex: uint8(gid.Index), HopLimit: 1})
			return v, []closer{s.pd}, err
		},
		func(s *scene) error { _, err := s.pd.CreateAH(AHAttr{Port: 77}); return err }, nil},
	{"member of a multicast group",
		func(s *scene) (closer, []closer, error) {
			qp, err := s.pd.CreateQP(QPInit{Type: QPTypeUD, SendCQ: s.cq, RecvCQ: s.cq, Cap: defaultCap, QKey: 7})
			if err != nil {
				return nil, nil, err
			}
			a := attached{qp}
			if err := errors.Join(qp.ToInit(1, 0), qp.AttachMulticast(a.group(), 0)); err != nil {
				return nil, nil, errors.Join(err, qp.Close())
			}
			return a, []closer{s.pd, s.cq}, nil
		},
		func(s *scene) error {
			qp, err := s.pd.CreateQP(QPInit{SendCQ: s.cq, RecvCQ: s.cq, Cap: defaultCap})
			if err != nil {
				return err
			}
			return errors.Join(qp.AttachMulticast(crowd, 0), qp.Close())
		},
		func(v closer) error {
			a := v.(attached)
			return a.AttachMulticast(a.group(), 0)
		}},
	{"event channel",
		func(*scene) (closer, []closer, error) {
			v, err := CreateEventChannel()
			return v, nil, err
		},
		func(*scene) error { _, err := (&EventChannel{}).CreateID(PortSpaceTCP); return err },
		func(v closer) error { _, err := v.(*EventChannel).Get(time.Now().Add(time.Millisecond)); return err }},
	{"id that is bound",
		func(s *scene) (closer, []closer, error) { return s.id(PortSpaceTCP) },
		func(s *scene) error {
			id, _, err := s.id(PortSpaceTCP)
			if err != nil {
				return err
			}
			return errors.Join(id.BindAddr(netip.AddrPort{}), id.Close())
		},
		func(v closer) error { return v.(*CMID).SetReuseAddr(true) }},
	{"id of a multicast group",
		func(s *scene) (closer, []closer, error) {
			if s.ctx.Name() == "loop0" {
				return nil, nil, errLoop
			}
			id, parents, err := s.id(PortSpaceUDP)
			if err != nil {
				return nil, nil, err
			}
			if err := id.JoinMulticast(crowd.Addr(), JoinFullMember); err != nil {
				return nil, nil, errors.Join(err, id.Close())
			}
			return id, parents, nil
		},
		func(s *scene) error {
			id, _, err := s.id(PortSpaceUDP)
			if err != nil {
				return err
			}
			return errors.Join(id.JoinMulticast(netip.MustParseAddr("10.0.0.1"), JoinFullMember), id.Close())
		},
		func(v closer) error { return v.(*CMID).LeaveMulticast(crowd.Addr()) }},
	{"id of an address by name",
		func(s *scene) (closer, []closer, error) {
			if s.ctx.Name() == "loop0" {
				return nil, nil, errLoop
			}
			all, err := GetAddrInfo(context.Background(), s.addr.String(), "0", AddrInfo{Passive: true})
			if err != nil {
				return nil, nil, err
			}
			ch, err := CreateEventChannel()
			if err != nil {
				return nil, nil, err
			}
			s.own = append(s.own, ch)
			v, err := ch.CreateEP(all[0])
			return v, []closer{ch}, err
		},
		func(*scene) error { _, err := (&EventChannel{}).CreateEP(AddrInfo{}); return err },
		func(v closer) error { return v.(*CMID).SetReuseAddr(true) }},
	{"queue pair of a thread domain",
		func(s *scene) (closer, []closer, error) {
			td, err := s.ctx.AllocTD()
			if err != nil {
				return nil, nil, err
			}
			s.own = append(s.own, td)
			domain, err := s.pd.AllocParentDomain(td)
			if err != nil {
				return nil, nil, err
			}
			s.own = append(s.own, domain)
			v, err := domain.CreateQP(QPInit{SendCQ: s.cq, RecvCQ: s.cq, Cap: defaultCap})
			return v, []closer{domain, s.cq}, err
		},
		func(s *scene) error { _, err := s.pd.CreateQP(QPInit{SendCQ: s.cq, RecvCQ: &CQ{}}); return err },
		func(v closer) error { _, err := v.(*QP).Query(); return err }},
	{"thread domain",
		func(s *scene) (closer, []closer, error) {
			v, err := s.ctx.AllocTD()
			return v, []closer{s.ctx}, err
		},
		func(s *scene) error { _, err := s.pd.AllocParentDomain(nil); return err }, nil},
	{"parent domain",
		func(s *scene) (closer, []closer, error) {
			td, err := s.ctx.AllocTD()
			if err != nil {
				return nil, nil, err
			}
			s.own = append(s.own, td)
			v, err := s.pd.AllocParentDomain(td)
			return v, []closer{td, s.pd}, err
		},
		func(s *scene) error { _, err := s.pd.AllocParentDomain(&TD{}); return err }, nil},
	{"extended completion queue",
		func(s *scene) (closer, []closer, error) {
			ch, err := s.ctx.CreateCompChannel()
			if err != nil {
				return nil, nil, err
			}
			s.own = append(s.own, ch)
			v, err := s.ctx.CreateCQEx(CQInit{Depth: 8, Channel: ch})
			return v, []closer{ch, s.ctx}, err
		},
		func(s *scene) error { _, err := s.ctx.CreateCQEx(CQInit{Depth: 1 << 30}); return err },
		func(v closer) error { _, err := v.(*CQ).PollEx(make([]WCEx, 1), 1); return err }},
	{"extended queue pair",
		func(s *scene) (closer, []closer, error) {
			v, err := s.pd.CreateQP(QPInit{SendCQ: s.cq, RecvCQ: s.cq, Cap: defaultCap, SendOps: WithSend})
			return v, []closer{s.pd, s.cq}, err
		},
		func(s *scene) error {
			_, err := s.pd.CreateQP(QPInit{SendCQ: s.cq, RecvCQ: s.cq, SendOps: WithSend, Cap: QPCap{MaxSendWR: 1 << 30}})
			return err
		},
		func(v closer) error {
			_, err := v.(*QP).PostRecv([]RecvWR{{}}, nil)
			return err
		}},
	{"extended reliable connections",
		func(s *scene) (closer, []closer, error) {
			v, err := s.ctx.OpenXRCD(-1, os.O_CREATE)
			return v, []closer{s.ctx}, err
		},
		func(s *scene) error { _, err := s.ctx.OpenXRCD(1<<20, 0); return err }, nil},
	{"receive queue",
		func(s *scene) (closer, []closer, error) {
			v, err := s.pd.CreateWQ(WQInit{CQ: s.cq, MaxWR: 8, MaxSGE: 1})
			return v, []closer{s.pd, s.cq}, err
		},
		func(s *scene) error { _, err := s.pd.CreateWQ(WQInit{CQ: s.cq, MaxWR: 1 << 30, MaxSGE: 1}); return err },
		func(v closer) error { _, err := v.(*WQ).PostRecv([]RecvWR{{}}, nil); return err }},
	{"table of receive queues",
		func(s *scene) (closer, []closer, error) {
			w, err := s.pd.CreateWQ(WQInit{CQ: s.cq, MaxWR: 8, MaxSGE: 1})
			if err != nil {
				return nil, nil, err
			}
			s.own = append(s.own, w)
			v, err := s.ctx.CreateIndTable([]*WQ{w})
			return v, []closer{w}, err
		},
		func(s *scene) error { _, err := s.ctx.CreateIndTable([]*WQ{{}}); return err }, nil},
	{"flow",
		func(s *scene) (closer, []closer, error) {
			qp, err := s.pd.CreateQP(QPInit{Type: QPTypeRawPacket, SendCQ: s.cq, RecvCQ: s.cq, Cap: defaultCap})
			if err != nil {
				return nil, nil, err
			}
			s.own = append(s.own, qp)
			v, err := qp.CreateFlow(FlowAttr{Port: 1}, []FlowSpec{FlowEth{}})
			return v, []closer{qp}, err
		},
		func(s *scene) error {
			qp, err := s.pd.CreateQP(QPInit{SendCQ: s.cq, RecvCQ: s.cq, Cap: defaultCap})
			if err != nil {
				return err
			}
			_, err = qp.CreateFlow(FlowAttr{Port: 77, Type: 77}, nil)
			return errors.Join(err, qp.Close())
		}, nil},
	{"counters",
		func(s *scene) (closer, []closer, error) {
			v, err := s.ctx.CreateCounters()
			return v, []closer{s.ctx}, err
		},
		func(*scene) error { _, err := (&Context{}).CreateCounters(); return err },
		func(v closer) error { return v.(*Counters).Read(make([]uint64, 1), 0) }},
	{"device memory",
		func(s *scene) (closer, []closer, error) {
			v, err := s.ctx.AllocDM(4096, 0)
			return v, []closer{s.ctx}, err
		},
		func(s *scene) error { _, err := s.ctx.AllocDM(1<<40, 0); return err },
		func(v closer) error { return v.(*DM).Read(0, make([]byte, 8)) }},
	{"region of device memory",
		func(s *scene) (closer, []closer, error) {
			d, err := s.ctx.AllocDM(4096, 0)
			if err != nil {
				return nil, nil, err
			}
			s.own = append(s.own, d)
			v, err := s.pd.RegDM(d, 0, 4096, AccessZeroBased|AccessLocalWrite)
			return v, []closer{s.pd, d}, err
		},
		func(s *scene) error { _, err := s.pd.RegDM(&DM{}, 0, 1, AccessZeroBased); return err }, nil},
	{"null region",
		func(s *scene) (closer, []closer, error) {
			v, err := s.pd.AllocNullMR()
			return v, []closer{s.pd}, err
		},
		func(s *scene) error { _, err := s.pd.ImportMR(1 << 30); return err }, nil},
	{"memory window",
		func(s *scene) (closer, []closer, error) {
			v, err := s.pd.AllocMW(MWType2)
			return v, []closer{s.pd}, err
		},
		func(s *scene) error { _, err := s.pd.AllocMW(77); return err }, nil},
}

// An object of each kind keeps its parents in use. Of many concurrent calls of Close one succeeds,
// whatever other calls run at the same time. After that all other calls fail. A failed creation
// keeps nothing in use.
func TestKindsClose(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newScene(t)
			err := k.fail(s)
			assert.Assert(t, err != nil && !errors.Is(err, ErrInUse), "a creation that must fail: %v", err)
			v, parents, err := k.make(s)
			if err != nil {
				s.close(t)
				t.Skip(err)
			}
			for _, p := range parents {
				assert.ErrorIs(t, p.Close(), ErrInUse)
			}
			var wg sync.WaitGroup
			if k.use != nil {
				wg.Go(func() {
					for end := soon(); !errors.Is(k.use(v), ErrClosed); {
						if !assert.Check(t, time.Now().Before(end)) {
							return
						}
					}
				})
			}
			closed := make(chan error, 3)
			for range cap(closed) {
				wg.Go(func() { closed <- v.Close() })
			}
			wg.Wait()
			done := 0
			for range cap(closed) {
				if err := <-closed; err == nil {
					done++
				} else {
					assert.Equal(t, err, ErrClosed)
				}
			}
			assert.Equal(t, done, 1)
			refuses(t, v)
			s.close(t)
		})
	}
}

// Many objects of each kind, one after another, and creations that fail, leave nothing behind in
// this process or in the kernel.
func TestKindsLeaveNothing(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 50
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newScene(t)
			var missing error
			cycle := func() {
				one := *s
				v, _, err := k.make(&one)
				if missing = err; err == nil {
					assert.NilError(t, v.Close())
				}
				assert.Assert(t, k.fail(&one) != nil, "a creation that must fail succeeds")
				assert.NilError(t, one.closeOwn())
			}
			cycle() // opens the descriptors that libraries and runtime open only once
			fds, goroutines, kernel := footprint(t)
			entries := tableEntries()
			for range n {
				cycle()
			}
			assert.Equal(t, tableEntries(), entries)
			var fds2, goroutines2 int
			var kernel2 string
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if fds2, goroutines2, kernel2 = footprint(t); fds2 == fds && goroutines2 <= goroutines && kernel2 == kernel {
					break
				}
			}
			assert.Equal(t, fds2, fds)
			assert.Assert(t, goroutines2 <= goroutines, "%d goroutines, %d before", goroutines2, goroutines)
			assert.Equal(t, kernel2, kernel)
			s.close(t)
			if missing != nil {
				t.Skip(missing)
			}
		})
	}
}

func newScene(t *testing.T) *scene {
	ctx := openDevice(t)
	return &scene{ctx: ctx, pd: closing[*PD](t)(ctx.AllocPD()), cq: closing[*CQ](t)(ctx.CreateCQ(64, nil, 0)),
		addr: localAddr(t, ctx)}
}

// close closes the objects of the scene, and so checks that nothing uses them.
func (s *scene) close(t *testing.T) {
	t.Helper()
	assert.NilError(t, s.closeOwn())
	assert.NilError(t, s.pd.Close())
	assert.NilError(t, s.cq.Close())
}

func (s *scene) closeOwn() (err error) {
	for _, v := range slices.Backward(s.own) {
		err = errors.Join(err, v.Close())
	}
	s.own = nil
	return err
}

// tableEntries counts the entries of the tables by which C refers to objects.
func tableEntries() string {
	return fmt.Sprint(len(byHandle.qps.m), len(byHandle.cqs.m), len(byHandle.srqs.m), len(byHandle.wqs.m))
}

// refuses calls every method of a closed object, and checks that all methods return and that those
// with an error result fail.
func refuses(t *testing.T, v closer) {
	t.Helper()
	o := reflect.ValueOf(v)
	for i := range o.NumMethod() {
		m := o.Method(i)
		name := fmt.Sprintf("%T.%s", v, o.Type().Method(i).Name)
		var args []reflect.Value
		for j := range m.Type().NumIn() {
			args = append(args, plausible(m.Type().In(j)))
		}
		done := make(chan []reflect.Value, 1)
		go func() { done <- m.Call(args) }()
		select {
		case results := <-done:
			for _, r := range results {
				if r.Type() == reflect.TypeFor[error]() && r.IsNil() {
					t.Errorf("%s of a closed object succeeds", name)
				}
			}
		case <-time.After(patience):
			t.Fatalf("%s of a closed object does not return", name)
		}
	}
}
