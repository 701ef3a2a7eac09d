//go:build linux && cgo

package cverbs

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// eachKind runs a subtest for each kind of object, and checks that the subtests leave nothing
// behind. It skips the kinds that the device does not support.
func eachKind(t *testing.T, test func(t *testing.T, s *scene, k *objectKind)) {
	s := newScene(t)
	missing := s.missing(t)
	left := nothingLeft(t)
	for i := range kinds {
		k := &kinds[i]
		t.Run(k.name, func(t *testing.T) {
			if err := missing[k.name]; err != nil {
				t.Skip(err)
			}
			test(t, s, k)
		})
	}
	left()
	s.close(t)
}

// one creates an object and passes it to end, which must close it.
func (s *scene) one(k *objectKind, end func(v closer, parents []closer) error) error {
	mine := *s
	v, parents, err := k.make(&mine)
	if err == nil {
		err = end(v, parents)
	}
	return errors.Join(err, mine.closeOwn())
}

func closed(v closer, _ []closer) error { return v.Close() }

// missing creates one object of each kind. It returns the errors of the kinds that the device does
// not support. As a side effect, libraries and runtime open the descriptors that they open only
// once.
func (s *scene) missing(t *testing.T) map[string]error {
	t.Helper()
	all := map[string]error{}
	for i := range kinds {
		if err := s.one(&kinds[i], closed); err != nil {
			var e *Error
			assert.Assert(t, errors.Is(err, errLoop) || errors.As(err, &e), "%s: %v", kinds[i].name, err)
			all[kinds[i].name] = err
		}
	}
	return all
}

// nothingLeft records which resources are in use. The function that it returns waits until no more
// than these are in use.
func nothingLeft(t *testing.T) (check func()) {
	fds, _, kernel := footprint(t)
	live, entries := Live(), tableEntries()
	return func() {
		t.Helper()
		var nowFDs int
		var nowKernel string
		for end := soon(); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if nowFDs, _, nowKernel = footprint(t); nowFDs == fds && nowKernel == kernel {
				break
			}
		}
		assert.Equal(t, nowFDs, fds, "descriptors")
		assert.Equal(t, nowKernel, kernel)
		assert.Assert(t, sameLive(live, Live()), "%v instead of %v", Live(), live)
		assert.Equal(t, tableEntries(), entries)
	}
}

// Many goroutines create, use and close objects of all kinds at once. Two goroutines close each
// object, while others try to close its parents.
func TestKindsAtOnce(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 2
	}
	s := newScene(t)
	missing := s.missing(t)
	left := nothingLeft(t)
	var wg sync.WaitGroup
	for i := range kinds {
		k := &kinds[i]
		if missing[k.name] != nil {
			continue
		}
		for range 3 {
			wg.Go(func() {
				for range rounds {
					err := s.one(k, func(v closer, parents []closer) error { return closedTwice(k, v, parents) })
					if !assert.Check(t, err, k.name) {
						return
					}
				}
			})
		}
	}
	wg.Wait()
	left()
	s.close(t)
	reportKinds(t, missing)
}

// reportKinds runs an empty subtest for each kind, so that the output shows which kinds are
// skipped.
func reportKinds(t *testing.T, missing map[string]error) {
	for i := range kinds {
		t.Run(kinds[i].name, func(t *testing.T) {
			if err := missing[kinds[i].name]; err != nil {
				t.Skip(err)
			}
		})
	}
}

// closedTwice closes an object from two goroutines while others use it and close its parents.
func closedTwice(k *objectKind, v closer, parents []closer) error {
	for _, p := range parents {
		if err := p.Close(); !errors.Is(err, ErrInUse) {
			return fmt.Errorf("Close of a parent: %w", err)
		}
	}
	errs := make(chan error, 2)
	var wg sync.WaitGroup
	if k.use != nil {
		wg.Go(func() {
			for end := soon(); !errors.Is(k.use(v), ErrClosed) && time.Now().Before(end); {
			}
		})
	}
	for range cap(errs) {
		wg.Go(func() { errs <- v.Close() })
	}
	wg.Wait()
	if a, b := <-errs, <-errs; (a == nil) == (b == nil) || a != nil && a != ErrClosed || b != nil && b != ErrClosed {
		return fmt.Errorf("two of Close: %v, %v", a, b)
	}
	return nil
}

// With few descriptors left, whatever their number, an object is created or the error names the
// limit. A failed creation leaves nothing behind.
func TestKindsFewDescriptors(t *testing.T) {
	counts := []int{0, 1, 2, 3, 6, 9}
	if !testing.Short() {
		counts = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	}
	eachKind(t, func(t *testing.T, s *scene, k *objectKind) {
		var before unix.Rlimit
		assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
		defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
		free, err := unix.Dup(0)
		assert.NilError(t, err)
		unix.Close(free)
		for _, more := range counts {
			limit := unix.Rlimit{Cur: uint64(free + more), Max: before.Max}
			assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
			if err := s.one(k, closed); err != nil {
				isErr(t, err, syscall.EMFILE)
				assert.ErrorContains(t, err, "(RLIMIT_NOFILE) is ")
			}
			assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
			assert.NilError(t, s.one(k, closed))
		}
	})
}

// Objects of a kind are created until the device or the host refuses one more. All of them can be
// closed, and then an object can be created again.
func TestKindsMany(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 20
	}
	eachKind(t, func(t *testing.T, s *scene, k *objectKind) {
		var all []closer
		var refused error
		mine := *s
		for len(all) < n {
			v, _, err := k.make(&mine)
			if refused = err; err != nil {
				break
			}
			all = append(all, v)
		}
		for _, v := range all {
			assert.Check(t, v.Close())
		}
		assert.NilError(t, mine.closeOwn())
		assert.Assert(t, len(all) >= 10, "%d of them: %v", len(all), refused)
		t.Logf("%d of them: %v", len(all), refused)
		assert.NilError(t, s.one(k, closed))
	})
}

const holdsAll = "GODAT_TEST_HOLDS_ALL"

// A process that has objects of all kinds is killed: its objects leave the device, and this process
// can create each kind as before.
func TestKindsKilled(t *testing.T) {
	if os.Getenv(holdsAll) != "" {
		holdKinds(t)
		return
	}
	rounds := 20
	if testing.Short() {
		rounds = 1
	}
	s := newScene(t)
	missing := s.missing(t)
	left := nothingLeft(t)
	for range rounds {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestKindsKilled$")
		cmd.Env = append(os.Environ(), holdsAll+"=1")
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		assert.NilError(t, err)
		in, err := cmd.StdinPipe() // so that the process ends when this one ends
		assert.NilError(t, err)
		assert.NilError(t, cmd.Start())
		stuck := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		held := map[string]bool{}
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "all" {
			if name, ok := strings.CutPrefix(lines.Text(), "has "); ok {
				held[name] = true
			}
		}
		assert.Check(t, stuck.Stop(), "it does not have all after %v", patience)
		assert.NilError(t, cmd.Process.Kill())
		cmd.Wait()
		in.Close()
		left()
		for i := range kinds {
			k := &kinds[i]
			assert.Equal(t, held[k.name], missing[k.name] == nil, k.name)
			if held[k.name] {
				assert.NilError(t, s.one(k, closed), k.name)
			}
		}
		left()
	}
	s.close(t)
	reportKinds(t, missing)
}

// holdKinds runs in the process that is killed.
func holdKinds(t *testing.T) {
	s := newScene(t)
	var all []closer
	for i := range kinds {
		if v, _, err := kinds[i].make(s); err == nil {
			all = append(all, v)
			fmt.Println("has " + kinds[i].name)
		}
	}
	fmt.Println("all")
	os.Stdin.Read(make([]byte, 1))
	for _, v := range all {
		v.Close()
	}
	s.closeOwn()
}
