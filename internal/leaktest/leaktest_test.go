package leaktest

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

func TestMain(m *testing.M) { Main(m) }

// A goroutine is reported with the function that started it, and a descriptor with its file.
// Neither is reported when it has ended.
func TestLeft(t *testing.T) {
	before := descriptors()
	running := len(goroutines()) // of package testing
	stop := make(chan struct{})
	go func() { <-stop }()
	f, err := os.Open("leaktest.go")
	assert.NilError(t, err)
	report := strings.Join(left(before, 0), "\n")
	assert.Assert(t, strings.Contains(report, "created by github.com/godat/godat/internal/leaktest.TestLeft"), report)
	if runtime.GOOS == "linux" {
		assert.Assert(t, strings.Contains(report, "descriptor of "+f.Name()) ||
			strings.Contains(report, "/leaktest/leaktest.go"), report)
	}
	assert.NilError(t, f.Close())
	close(stop)
	for until := time.Now().Add(Patience); len(goroutines()) > running; time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(until))
	}
	assert.Equal(t, len(more(descriptors(), before)), 0)
}

func waits(stop chan struct{}) { <-stop }

// Only goroutines in the given function are excused.
func TestExcuse(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	go waits(stop)
	go waits(stop)
	go func() { <-stop }()
	n := 0
	for until := time.Now().Add(Patience); n < 2 && time.Now().Before(until); n += Excuse("leaktest.waits") {
	}
	assert.Equal(t, n, 2)
	left := slices.DeleteFunc(goroutines(), func(stack string) bool { return !strings.Contains(stack, "TestExcuse") })
	assert.Equal(t, len(left), 1, "%v", left) // others are of tests before, whose goroutines may just end
}
