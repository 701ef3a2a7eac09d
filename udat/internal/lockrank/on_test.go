//go:build lockcheck

package lockrank

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/godat/godat/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

type low struct{}
type high struct{}

func (low) Rank() (int, string)  { return 1, "low" }
func (high) Rank() (int, string) { return 2, "high" }

// refused says why taking a lock panics.
func refused(lock func()) (why string) {
	defer func() {
		if p := recover(); p != nil {
			why = fmt.Sprint(p)
		}
	}()
	lock()
	return ""
}

func TestOrder(t *testing.T) {
	var a, a2 Mutex[low]
	var b Mutex[high]
	for range 2 { // as before, once all are free
		a.Lock()
		b.Lock()
		a.Unlock()
		why := refused(a2.Lock)
		if !strings.Contains(why, "low (rank 1) is taken under high (rank 2)") {
			t.Error(why)
		}
		if !a.TryLock() {
			t.Error("a free lock is not taken")
		}
		b.Unlock()
		if why := refused(a2.Lock); !strings.Contains(why, "low (rank 1) is taken under low (rank 1)") {
			t.Error(why)
		}
		if why := refused(a2.LockNested); why != "" {
			t.Error(why)
		}
		a2.Unlock()
		// Another goroutine holds nothing.
		var others sync.WaitGroup
		others.Go(func() {
			if why := refused(a2.Lock); why != "" {
				t.Error(why)
			}
		})
		others.Wait()
		a2.Unlock() // that the other one has taken
		a.Unlock()
		if why := refused(a2.Lock); why != "" {
			t.Error(why)
		}
		a2.Unlock()
	}
	if len(held) > 0 {
		t.Error(held)
	}
}
