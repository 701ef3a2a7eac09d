package udat_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestDeadHandles calls every exported method of every handle type on nil, on the zero value and on
// a freed object, with zero arguments and with plausible ones. A method with an error result
// returns InvalidHandle, every other method returns zero values. No call panics or hangs.
func TestDeadHandles(t *testing.T) {
	var declared []string
	eachFunction(t, func(_ string, fn *ast.FuncDecl) {
		if fn.Name.Name == "object" {
			declared = append(declared, receiver(fn))
		}
	})
	assert.Equal(t, len(declared), len(kindOfHandle), "handle types in the sources: %v", declared)
	onEach(t, func(t *testing.T, dev string) {
		z := newZoo(t, dev)
		var dead []udat.Handle
		for h := range kindOfHandle {
			dead = append(dead, reflect.Zero(h).Interface().(udat.Handle), reflect.New(h.Elem()).Interface().(udat.Handle))
		}
		dead = append(dead, freedObjects(t, newZoo(t, dev))...)
		for _, h := range dead {
			assert.Assert(t, !live(h), "%T", h)
			assert.ErrorIs(t, udat.SetConsumerContext(h, 1), udat.ErrInvalidHandle)
			_, err := udat.GetConsumerContext(h)
			assert.ErrorIs(t, err, udat.ErrInvalidHandle)
		}
		everyCallFails(t, dead, plausible(z))
		everyCallFails(t, dead, reflect.Zero)
		rule.Proves(t, "GEN-01", "GEN-02", "GEN-03", "CTX-05")
	})
}

// freedObjects frees one object of every kind, and ends connection requests in each way.
func freedObjects(t *testing.T, z *zoo) []udat.Handle {
	t.Helper()
	dead := append(z.handles(), z.ia)
	assert.NilError(t, z.request.Reject(nil))
	for _, h := range dead[1 : len(dead)-1] {
		assert.NilError(t, h.(interface{ Free() error }).Free(), "%T", h)
	}
	assert.NilError(t, z.ia.Close(udat.CloseGraceful))
	return dead
}

// TestDeadArguments calls every method of live objects with one handle nil, zero or freed, alone or
// inside a segment or an operation, and all other arguments plausible. No call panics, hangs or
// succeeds.
func TestDeadArguments(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		z := newZoo(t, dev)
		dead := make(map[reflect.Type][]udat.Handle)
		for h := range kindOfHandle {
			dead[h] = []udat.Handle{reflect.Zero(h).Interface().(udat.Handle), reflect.New(h.Elem()).Interface().(udat.Handle)}
		}
		for _, h := range freedObjects(t, newZoo(t, dev)) {
			dead[reflect.TypeOf(h)] = append(dead[reflect.TypeOf(h)], h)
		}
		calls := 0
		eachCall(append(z.handles(), z.ia), func(_ udat.Handle, name string, m reflect.Value) {
			if z.srq == nil && strings.HasSuffix(name, "CreateEPWithSRQ") {
				return // the device has no live object of this kind
			}
			for j := range m.Type().NumIn() {
				for kind, handles := range dead {
					for i, h := range handles {
						arg, ok := holder(m.Type().In(j), kind, h)
						if !ok || i == 0 && mayBeNil[fmt.Sprintf("%s %d", name, j)] {
							continue
						}
						calls++
						args := arguments(m, plausible(z))
						args[j] = arg
						results := invoke(t, name, m, args)
						if results == nil {
							continue
						}
						err := errorOf(results)
						what := fmt.Sprintf("%s, argument %d, %T number %d", name, j+1, h, i)
						if direct := m.Type().In(j) == kind; err == nil || direct && !namesKind(err, kindOfHandle[kind], name, j) {
							t.Errorf("%s: %v", what, err)
						}
					}
				}
			}
		})
		assert.Assert(t, calls > 50, "%d calls with a dead argument", calls)
		rule.Proves(t, "GEN-01")
	})
}

// namesKind reports whether an error is InvalidHandle with the subtype of the kind. For a
// dispatcher that is an argument (counted from 0) the subtype is that of its role; for a dispatcher
// that is the receiver there is no subtype.
func namesKind(err error, kind udat.HandleType, method string, argument int) bool {
	want := map[udat.HandleType]udat.Subtype{
		udat.HandleCR: udat.SubHandleCR, udat.HandleEP: udat.SubHandleEP, udat.HandleIA: udat.SubHandleIA,
		udat.HandleLMR: udat.SubHandleLMR,
		udat.HandlePSP: udat.SubHandlePSP, udat.HandlePZ: udat.SubHandlePZ, udat.HandleRMR: udat.SubHandleRMR,
		udat.HandleRSP: udat.SubHandleRSP,
		udat.HandleCNO: udat.SubHandleCNO, udat.HandleSRQ: udat.SubHandleSRQ,
	}[kind]
	switch {
	case kind != udat.HandleEVD || argument < 0:
	case strings.Contains(method, "CreateEP"):
		want = []udat.Subtype{1: udat.SubHandleEVDRecv, udat.SubHandleEVDRequest, udat.SubHandleEVDConn}[argument]
	default:
		want = udat.SubHandleEVDCR
	}
	var e *udat.Error
	return errors.As(err, &e) && e.Type == udat.InvalidHandle && e.Subtype == want
}

// mayBeNil lists the handles that may be nil: method and parameter, counted from 0.
var mayBeNil = map[string]bool{
	"*udat.IA.CreateEP 0": true, "*udat.IA.CreateEP 1": true, "*udat.IA.CreateEP 2": true, "*udat.IA.CreateEP 3": true,
	"*udat.IA.CreateEPWithSRQ 0": true, "*udat.IA.CreateEPWithSRQ 1": true, "*udat.IA.CreateEPWithSRQ 2": true,
	"*udat.IA.CreateEPWithSRQ 3": true,
	"*udat.IA.CreateEVD 2":       true, "*udat.EVD.ModifyCNO 0": true,
	"*udat.IA.CreateRSP 1": true, "*udat.CR.Accept 0": true,
}

// holder makes a value of a parameter's type that contains h, if the type can contain a handle of
// this kind.
func holder(param, kind reflect.Type, h udat.Handle) (reflect.Value, bool) {
	v := reflect.New(param).Elem()
	if param == kind {
		v.Set(reflect.ValueOf(h))
		return v, true
	}
	region, ok := h.(*udat.LMR)
	if !ok {
		return v, false
	}
	segment := udat.LMRTriplet{LMR: region, VirtualAddress: 4096, SegmentLength: 8}
	switch p := v.Addr().Interface().(type) {
	case *udat.LMRTriplet:
		*p = segment
	case *[]udat.LMRTriplet:
		*p = []udat.LMRTriplet{segment}
	case *[]udat.Op:
		*p = []udat.Op{{IOV: []udat.LMRTriplet{segment}}}
	case *[]udat.Recv:
		*p = []udat.Recv{{IOV: []udat.LMRTriplet{segment}}}
	default:
		return v, false
	}
	return v, true
}

// TestValuesOfAnySize prints zero, small and greatest values of every exported type with a String
// method, and calls the methods of zero events and attributes. No call panics, and no text is
// empty.
func TestValuesOfAnySize(t *testing.T) {
	withoutDevice(t)
	printed := map[string]fmt.Stringer{}
	for _, n := range []uint64{0, 1, 5, 11, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		for _, v := range []fmt.Stringer{udat.DTOOperation(n), udat.DTOStatus(n), udat.EPState(n), udat.EventNumber(n),
			udat.HandleType(n),
			udat.ReturnType(n), udat.Subtype(n), udat.MemPriv(n), udat.EVDFlags(n), udat.CompletionFlags(n), udat.EVDState(n)} {
			printed[reflect.TypeOf(v).Name()] = v
			assert.Assert(t, v.String() != "", "%T(%d)", v, n)
		}
	}
	eachFunction(t, func(_ string, fn *ast.FuncDecl) {
		if recv := receiver(fn); fn.Name.Name == "String" && ast.IsExported(recv) {
			assert.Assert(t, printed[recv] != nil, "%s is not tried", recv)
		}
	})
	for _, ev := range []*udat.Event{nil, {}, {CR: &udat.CR{}}} {
		assert.Equal(t, ev.LocalAddr(), netip.Addr{})
	}
	for _, p := range []*udat.ProviderAttr{nil, {}} {
		assert.Equal(t, p.Specific("nothing"), "")
	}
	assert.Equal(t, (&udat.Error{}).Error(), "udat: success")
}

// everyCallFails calls every method of dead handles with arguments that fill makes. Methods with an
// error result must return InvalidHandle, the others zero values.
func everyCallFails(t *testing.T, handles []udat.Handle, fill func(reflect.Type) reflect.Value) {
	t.Helper()
	eachCall(handles, func(h udat.Handle, name string, m reflect.Value) {
		results := invoke(t, name, m, arguments(m, fill))
		if results == nil {
			return
		}
		if m.Type().NumOut() > 0 && m.Type().Out(m.Type().NumOut()-1) == reflect.TypeFor[error]() {
			if err := errorOf(results); !namesKind(err, kindOfHandle[reflect.TypeOf(h)], name, -1) {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		switch name {
		case "*udat.LMR.Triplet", "*udat.LMR.RMRTriplet":
			return // keep the length, so that a post refuses the segment and does not skip it as empty
		case "*udat.IA.Name", "*udat.IA.Addr", "*udat.PSP.Qual", "*udat.RSP.Qual":
			if udat.Made(h) {
				return // these return what Open was called with
			}
		}
		for i, r := range results {
			if !r.IsZero() {
				t.Errorf("%s: result %d is %v", name, i, r)
			}
		}
	})
}

// eachCall visits every exported method of the handles, without those that exist only in tests.
func eachCall(handles []udat.Handle, visit func(h udat.Handle, name string, m reflect.Value)) {
	for _, h := range handles {
		v := reflect.ValueOf(h)
		for i := range v.NumMethod() {
			if m := v.Type().Method(i); !forTests(m) {
				visit(h, fmt.Sprintf("%T.%s", h, m.Name), v.Method(i))
			}
		}
	}
}

// forTests reports whether a method exists only in tests.
func forTests(m reflect.Method) bool {
	file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer())
	return strings.HasSuffix(file, "_test.go")
}

func arguments(m reflect.Value, fill func(reflect.Type) reflect.Value) []reflect.Value {
	args := make([]reflect.Value, m.Type().NumIn())
	for j := range args {
		args[j] = fill(m.Type().In(j))
	}
	return args
}

// invoke calls a method; a panic and a call that does not return fail the test.
func invoke(t *testing.T, name string, m reflect.Value, args []reflect.Value) (results []reflect.Value) {
	t.Helper()
	done := make(chan string, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Sprintf("panics: %v", p)
			}
			close(done)
		}()
		if m.Type().IsVariadic() {
			results = m.CallSlice(args)
		} else {
			results = m.Call(args)
		}
	}()
	select {
	case wrong := <-done:
		if wrong != "" {
			t.Errorf("%s %s", name, wrong)
		}
	case <-time.After(patience):
		t.Fatalf("%s does not return", name)
	}
	return results
}

// errorOf returns the error among the results of a call, or nil if there is none.
func errorOf(results []reflect.Value) error {
	if len(results) == 0 {
		return nil
	}
	err, _ := results[len(results)-1].Interface().(error)
	return err
}

// plausible fills in arguments that are valid for live objects: handles of the zoo, short times,
// one event or operation.
func plausible(z *zoo) func(reflect.Type) reflect.Value {
	return func(t reflect.Type) reflect.Value {
		for _, v := range append([]any{
			time.Second, context.Background(), udat.ConnQual(4711), []udat.Op{{IOV: z.iov(0, 8)}},
			[]udat.Recv{{IOV: z.iov(0, 8)}}, z.iov(0, 8),
			z.mem.Triplet(0, 8), z.mem.RMRTriplet(0, 8), make([]udat.Event, 1), udat.Event{Number: udat.EventSoftware},
			make([]byte, 8),
			udat.PrivAll, udat.EVDDTO, &udat.EPAttr{}, z.ia.Addr(), udat.EPFieldQoS, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1},
		}, slices.Collect(anyHandles(z))...) {
			if reflect.TypeOf(v) == t || t == reflect.TypeFor[context.Context]() && reflect.TypeOf(v).Implements(t) {
				return reflect.ValueOf(v)
			}
		}
		if t.Kind() == reflect.Int {
			return reflect.ValueOf(1).Convert(t)
		}
		return reflect.Zero(t)
	}
}

func anyHandles(z *zoo) func(yield func(any) bool) {
	return func(yield func(any) bool) {
		for _, h := range append(z.handles(), z.ia) {
			if !yield(h) {
				return
			}
		}
	}
}
