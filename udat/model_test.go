package udat_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// stepsEnv sets the number of steps of the model test; the default is small.
const stepsEnv = "GODAT_MODEL_STEPS"

// modelRun is the average number of steps in one world.
const modelRun = 100

// TestModel drives endpoints and dispatchers with random calls, legal and illegal, and compares all
// results with a model. A failure is shrunk to few steps; -rapid.seed repeats it.
func TestModel(t *testing.T) {
	steps := 6000
	if raceEnabled || testing.Short() {
		steps = 2000
	}
	if env := os.Getenv(stepsEnv); env != "" {
		var err error
		if steps, err = strconv.Atoi(env); err != nil {
			t.Fatalf("%s: %v", stepsEnv, err)
		}
	}
	set := func(name, value string) {
		if err := flag.Set("rapid."+name, value); err != nil {
			t.Fatal(err)
		}
	}
	set("nofailfile", "true")
	if patience < time.Minute {
		set("shrinktime", "1ms") // with a short patience only the failure matters
	}
	perRun := modelRun
	if testing.Short() {
		set("steps", strconv.Itoa(2*modelRun)) // rapid halves it
	} else {
		set("steps", strconv.Itoa(modelRun))
	}
	onEachOutside(t, func(t *testing.T, dev string) {
		if !udat.DeviceAttr(open(t, dev)).Acknowledged {
			t.Skip("the model's devices complete requests when the peer has taken them")
		}
		some := steps
		if dev != "mem0" && os.Getenv(stepsEnv) == "" {
			some = steps / 4
		}
		set("checks", strconv.Itoa(max(1, some/perRun)))
		done, seen, proven := map[string]int{}, map[string]int{}, rule.NewLedger(t)
		var failed []string
		t.Cleanup(func() {
			if len(failed) > 0 {
				t.Logf("the steps of the first failure, which timing may keep from being repeated:\n%s", strings.Join(failed, "\n"))
			}
		})
		rapid.Check(t, func(rt *rapid.T) { model(rt, dev, done, seen, proven, &failed) })
		total := 0
		for _, n := range done {
			total += n
		}
		t.Logf("%d steps: %v", total, done)
		t.Logf("events: %v", seen)
	})
}

func model(t *rapid.T, dev string, done, seen map[string]int, proven *rule.Ledger, failed *[]string) {
	w := newWorld(t, dev, proven)
	w.done, w.seen = done, seen
	defer func() {
		if r := recover(); r != nil {
			if fmt.Sprint(r) != "invalid data" && len(*failed) == 0 {
				*failed = append(w.trace, fmt.Sprint(r))
			}
			panic(r)
		}
	}()
	w.play(t)
	time.Sleep(time.Millisecond)
	w.settle(t)
	if err := w.ia.Close(udat.CloseAbrupt); err != nil {
		t.Fatalf("close: %v", err)
	}
	for _, e := range w.evds {
		if e.waiter == nil {
			continue
		}
		select {
		case r := <-e.waiter.done:
			isRefused(t, r.err, udat.Abort)
			w.shows("EVD-WAIT-19")
		case <-time.After(patience):
			t.Fatalf("%s: the adapter is closed, and the wait is still blocked", e.name)
		}
	}
}

// The text that rapid prints for a drawn value.
func (e *mEVD) GoString() string { return e.name }
func (s *seat) GoString() string { return s.recv.name }
func (ep *mEP) GoString() string { return fmt.Sprintf("%s's %v", ep.seat.recv.name, ep.state) }
func (r *mCR) GoString() string  { return fmt.Sprintf("request of %#v", r.from) }

func isOK(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isRefused(t *rapid.T, err error, want udat.ReturnType, sub ...udat.Subtype) {
	t.Helper()
	match := &udat.Error{Type: want}
	if len(sub) > 0 {
		match.Subtype = sub[0]
	}
	if !errors.Is(err, match) {
		t.Fatalf("got %v, want %v", err, match)
	}
}
