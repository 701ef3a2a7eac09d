// Package leaktest makes a test program fail if its tests leave goroutines or descriptors behind.
//
//	func TestMain(m *testing.M) { leaktest.Main(m) }
package leaktest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience limits every wait of a test that must succeed, and the wait of Main for goroutines and
// descriptors to disappear. It is long, because machines may be slow, and virtual machines slower.
// lab/mutate shortens it with GODAT_TEST_PATIENCE.
var Patience = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("GODAT_TEST_PATIENCE")); err == nil {
		return d
	}
	return 60 * time.Second
}()

// Main runs the tests of a package and ends the process.
func Main(m *testing.M) { os.Exit(M{m}.Run()) }

// M is a testing.M whose Run checks for leaks.
type M struct{ *testing.M }

// Run runs the tests and returns the program's exit code. If the tests pass but leave goroutines or
// open descriptors behind, Run prints them, with the stack of each goroutine and the call that
// started it, and returns 1.
func (m M) Run() int {
	startPoller()
	before := descriptors()
	code := m.M.Run()
	if code != 0 || flag.Lookup("test.fuzz").Value.String() != "" {
		return code
	}
	if left := left(append(before, keptDescriptors()...), Patience); len(left) > 0 {
		fmt.Printf("FAIL: left behind by the tests, %v after their end:\n%s\n", Patience, strings.Join(counted(left), "\n\n"))
		return 1
	}
	return 0
}

// counted merges equal entries. It puts before each entry how often that entry was in the list.
func counted(list []string) []string {
	slices.Sort(list)
	var once []string
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[0] {
			n++
		}
		once = append(once, fmt.Sprintf("%d: %s", n, list[0]))
		list = list[n:]
	}
	return once
}

// The function left waits until the goroutines have ended and no descriptor is open that is not in
// initial. It waits no longer than limit. It returns the goroutines and descriptors that remain.
func left(initial []string, limit time.Duration) (list []string) {
	for until := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		list = append(goroutines(), slices.DeleteFunc(more(descriptors(), initial), ofLoopDevice)...)
		if len(list) == 0 || time.Now().After(until) {
			return list
		}
	}
}

// goroutines returns the stacks of all goroutines except the caller, those that Excuse has
// excluded, and those of os/signal, which never end.
func goroutines() []string {
	buf := make([]byte, 16<<20)
	all := strings.Split(strings.TrimSpace(string(buf[:runtime.Stack(buf, true)])), "\n\n")
	return slices.DeleteFunc(all[1:], func(stack string) bool {
		_, ok := excused.Load(name(stack))
		return ok || strings.Contains(stack, "created by os/signal.")
	})
}

var excused sync.Map // names of excused goroutines

// name returns the name of a goroutine without its state: "goroutine 12".
func name(stack string) string {
	name, _, _ := strings.Cut(stack, " [")
	return name
}

// Excuse finds the goroutines whose stacks now contain one of the functions, excludes them from all
// later checks, and returns their number. It is for a test in which the kernel blocks system calls
// for minutes.
func Excuse(functions ...string) (n int) {
	for _, stack := range goroutines() {
		if slices.ContainsFunc(functions, func(f string) bool { return strings.Contains(stack, f+"(") }) {
			excused.Store(name(stack), true)
			n++
		}
	}
	return n
}

// OfLibrary returns the stacks of the goroutines that this module's packages started. Goroutines
// that tests started are not among them.
func OfLibrary() []string {
	return slices.DeleteFunc(goroutines(), func(stack string) bool {
		_, by, _ := strings.Cut(stack, "created by ")
		return !strings.Contains(by, "godat/") || strings.Contains(by, "_test.")
	})
}

// Blocked waits until n goroutines are blocked in a function, for example "rdmanet.(*Conn).Read". A
// test that wants to disturb a blocked call need not guess how long the call takes to block.
func Blocked(t testing.TB, n int, function string) {
	t.Helper()
	for until := time.Now().Add(Patience); ; time.Sleep(time.Millisecond) {
		blocked := 0
		for _, stack := range goroutines() {
			state, calls, _ := strings.Cut(stack, "\n")
			if strings.Contains(calls, function+"(") && !strings.Contains(state, "[run") { // neither running nor runnable
				blocked++
			}
		}
		if blocked >= n {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("%d goroutines are blocked in %s, not %d", blocked, function, n)
		}
	}
}

// startPoller makes the runtime open the descriptors of its network poller before the tests begin.
// They stay open, and must not count as a leak.
func startPoller() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// descriptors returns a description of each open descriptor of the process, or nothing if there is
// no /proc.
func descriptors() []string {
	var list []string
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if name, err := os.Readlink(l); err == nil {
			list = append(list, "descriptor of "+name)
		}
	}
	return list
}

// keptDescriptors lists the descriptors that stay open by design. For each device, librdmacm keeps
// a context open, and also the context's event channel. If CMID.Context has returned that context,
// cverbs keeps an epoll descriptor that waits for the context's events. cverbs also keeps the
// eventfds that wake blocked threads.
func keptDescriptors() []string {
	list, _ := filepath.Glob("/dev/infiniband/uverbs*")
	for range list {
		list = append(list, "anon_inode:[infinibandevent]", "anon_inode:[eventpoll]")
	}
	for range runtime.GOMAXPROCS(0) / 2 {
		list = append(list, "anon_inode:[eventfd]")
	}
	if slices.ContainsFunc(descriptors(), ofLoopDevice) {
		list = append(list, "anon_inode:[eventfd]") // eventfd of the loop device's connection manager context
	}
	for i := range list {
		list[i] = "descriptor of " + list[i]
	}
	return list
}

// ofLoopDevice reports whether a descriptor is the memory of the loop device, which stays open
// until the process ends.
func ofLoopDevice(descriptor string) bool { return strings.Contains(descriptor, "/memfd:loop device") }

// more returns the entries of list that are not in known.
func more(list, known []string) []string {
	known = slices.Clone(known)
	return slices.DeleteFunc(list, func(s string) bool {
		i := slices.Index(known, s)
		if i >= 0 {
			known = slices.Delete(known, i, i+1)
		}
		return i >= 0
	})
}
