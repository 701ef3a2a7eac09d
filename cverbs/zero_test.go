package cverbs

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// objects has one value of every type of this package that stands for a C object.
var objects = []any{&Context{}, &PD{}, &TD{}, &MR{}, &MW{}, &CompChannel{}, &CQ{}, &SRQ{}, &QP{}, &AH{},
	&EventChannel{}, &CMID{}, &DM{}, &XRCD{}, &WQ{}, &IndTable{}, &Flow{}, &Counters{}}

// TestClosedObjects calls every method of a nil object and of the zero value, with plausible and
// with zero arguments. No method panics or hangs. Methods with an error result fail, and the others
// return zero values. The test needs no device.
func TestClosedObjects(t *testing.T) {
	stub, err := os.ReadFile("stub.go")
	assert.NilError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^func \(\w+ \*(\w+)\) [A-Z]`).FindAllStringSubmatch(string(stub), -1) {
		if m[1] == "Turn" {
			continue // Turn is a list whose zero value is ready for use
		}
		known := slices.ContainsFunc(objects, func(o any) bool { return reflect.TypeOf(o).Elem().Name() == m[1] })
		assert.Assert(t, known, "%s is not tried", m[1])
	}
	for _, zero := range objects {
		for _, v := range []reflect.Value{reflect.Zero(reflect.TypeOf(zero)), reflect.ValueOf(zero)} {
			for i := range v.NumMethod() {
				what := fmt.Sprintf("%T.%s, nil %v", zero, v.Type().Method(i).Name, v.IsNil())
				for _, fill := range []func(reflect.Type) reflect.Value{plausible, reflect.Zero} {
					callClosed(t, what, v.Method(i), fill)
				}
			}
		}
	}
}

func callClosed(t *testing.T, what string, m reflect.Value, fill func(reflect.Type) reflect.Value) {
	t.Helper()
	var args []reflect.Value
	for j := range m.Type().NumIn() {
		args = append(args, fill(m.Type().In(j)))
	}
	done := make(chan string, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Sprint("panics: ", p)
			}
			close(done)
		}()
		results := m.Call(args)
		for i, r := range results {
			switch {
			case r.Type() == reflect.TypeFor[error]():
				if r.IsNil() {
					done <- "succeeds"
				}
			case m.Type().Out(len(results)-1) != reflect.TypeFor[error]() && !r.IsZero():
				done <- fmt.Sprintf("result %d is %v", i, r)
			}
		}
	}()
	select {
	case wrong := <-done:
		if wrong != "" {
			t.Errorf("%s %s", what, wrong)
		}
	case <-time.After(patience):
		t.Fatalf("%s does not return", what)
	}
}

// plausible returns an argument that would be valid for an open object.
func plausible(t reflect.Type) reflect.Value {
	for _, v := range []any{context.Background(), time.Now().Add(time.Second), make([]WC, 1), make([]WCEx, 1),
		make([]SendWR, 1), make([]RecvWR, 1), make([]byte, 8), time.Second, netip.MustParseAddr("239.1.2.3"),
		netip.MustParseAddrPort("127.0.0.1:7")} {
		if reflect.TypeOf(v).AssignableTo(t) && t.Kind() != reflect.Interface || t == reflect.TypeFor[context.Context]() &&
			reflect.TypeOf(v).Implements(t) {
			return reflect.ValueOf(v)
		}
	}
	switch t.Kind() {
	case reflect.Int, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uintptr:
		return reflect.ValueOf(1).Convert(t)
	}
	return reflect.Zero(t)
}
