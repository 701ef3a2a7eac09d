package udat_test

import (
	"context"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestEveryCallAtOnce calls the exported methods of live objects, including a connected endpoint,
// from 32 goroutines, at random and with plausible arguments. Free and Close are among the methods,
// so that later calls meet dead objects. No call panics or hangs, and at the end an abrupt Close
// succeeds.
func TestEveryCallAtOnce(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		rounds, calls := 4, 200
		if testing.Short() || dev != "mem0" {
			rounds, calls = 2, 60
		}
		for range rounds {
			everyCallAtOnce(t, dev, calls)
		}
	})
}

func everyCallAtOnce(t *testing.T, dev string, calls int) {
	z, peer := newZoo(t, dev), newEnd(t, dev, setup{})
	connect(t, peer, &z.end)
	for i := range 16 {
		assert.NilError(t, peer.ep.PostRecv(peer.iov(0, 8), udat.Cookie(i), 0))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	plain := plausible(z)
	fill := func(arg reflect.Type) reflect.Value {
		switch arg {
		case reflect.TypeFor[time.Duration]():
			return reflect.ValueOf(time.Millisecond)
		case reflect.TypeFor[context.Context]():
			return reflect.ValueOf(ctx)
		case reflect.TypeFor[udat.RMRTriplet]():
			return reflect.ValueOf(peer.mem.RMRTriplet(0, 8))
		}
		return plain(arg)
	}
	var names []string
	var methods []reflect.Value
	eachCall(append(z.handles(), z.ia), func(_ udat.Handle, name string, m reflect.Value) {
		names, methods = append(names, name), append(methods, m)
	})
	assert.Assert(t, len(methods) > 80, "%d methods", len(methods))
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range calls {
				i := rand.IntN(len(methods))
				ends := strings.HasSuffix(names[i], ".Free") || strings.HasSuffix(names[i], ".Close")
				if ends && rand.IntN(100) > 0 {
					continue
				}
				invoke(t, names[i], methods[i], arguments(methods[i], fill))
			}
		})
	}
	time.AfterFunc(time.Duration(rand.IntN(200))*time.Millisecond, cancel) // ends waits without a limit
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * patience):
		t.Fatal("calls do not return")
	}
	z.ia.Close(udat.CloseAbrupt) // it may be closed already
	peer.ia.Close(udat.CloseAbrupt)
}
