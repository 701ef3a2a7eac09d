package udat_test

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// left counts the resources that a process and its devices hold.
type left struct {
	files, goroutines int
	kernel            string // of the devices, by the kernel's own count
}

func holding(t *testing.T) (l left) {
	t.Helper()
	l.goroutines = runtime.NumGoroutine()
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		l.files = len(files)
	}
	if tool, err := exec.LookPath("rdma"); err == nil {
		out, _ := exec.Command(tool, "resource", "show").Output()
		l.kernel = strings.TrimSpace(string(out))
	}
	return l
}

// more reports whether more is held now than before. Less may be held, because resources of earlier
// tests may have been released since.
func (l left) more(before left) bool {
	then, now := counts(before.kernel), counts(l.kernel)
	kept := runtime.GOMAXPROCS(0) / 2 // descriptors of cverbs, from the first brief wait on
	if l.files > before.files+kept || l.goroutines > before.goroutines || len(then) != len(now) {
		return true
	}
	for i := range now {
		if now[i] > then[i] {
			return true
		}
	}
	return false
}

var number = regexp.MustCompile(`\d+`)

func counts(text string) (list []int) {
	for _, s := range number.FindAllString(text, -1) {
		n, _ := strconv.Atoi(s)
		list = append(list, n)
	}
	return list
}

// TestCycles connects, transfers and disconnects a thousand times, alternately with the previous
// endpoint and with a new one, and compares the resources held before and after.
func TestCycles(t *testing.T) {
	cycles := 1000
	if testing.Short() || raceEnabled {
		cycles = 100
	}
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		psp := listen(t, b)
		cycle := func(i int) {
			assert.NilError(t, a.ep.Connect(b.ia.Addr(), psp.Qual(), patience, nil, 0, 0))
			assert.NilError(t, expect(t, b.cr, udat.EventConnectionRequest).CR.Accept(b.ep, nil))
			expect(t, b.conn, udat.EventConnectionEstablished)
			expect(t, a.conn, udat.EventConnectionEstablished)
			want := a.put(0, 1000, byte(i))
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 1000), 1, 0))
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 1000), 2, 0))
			assert.NilError(t, a.ep.PostSend(a.iov(0, 1000), 3, 0))
			completion(t, b.recv, 1)
			completion(t, a.request, 3)
			sameBytes(t, b.get(0, 1000), want)
			if i%2 == 0 {
				part(t, a, b, udat.CloseFlags(i/2%2))
			} else {
				part(t, b, a, udat.CloseFlags(i/2%2))
			}
			flushed(t, b.recv, 2)
			for _, e := range []*end{a, b} {
				if i%3 > 0 {
					assert.NilError(t, e.ep.Reset())
					continue
				}
				assert.NilError(t, e.ep.Free())
				e.ep = e.another(nil)
			}
		}
		for i := range 12 {
			cycle(i)
		}
		before := holding(t)
		begin := time.Now()
		for i := range cycles {
			cycle(i)
		}
		took := time.Since(begin)
		var after left
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			if after = holding(t); !after.more(before) {
				break
			}
		}
		t.Logf("%d cycles, %v each\nbefore %+v\nafter %+v", cycles, took/time.Duration(cycles), before, after)
		assert.Assert(t, !after.more(before), "more is held than before")
		rule.Proves(t, "EPST-44", "EP-RESET-05", "EP-FREE-01", "V-25", "GAP-34")
	})
}
