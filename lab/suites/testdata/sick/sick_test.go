// Package sick contains tests that end in all possible ways, for the test of the runner.
package sick

import (
	"testing"
	"time"
)

func TestGood(t *testing.T) {}

func TestBad(t *testing.T) { t.Error("bad") }

func TestSkip(t *testing.T) { t.Skip("skipped") }

func TestBystander(t *testing.T) { wait(t) }

func TestCrash(t *testing.T) {
	t.Parallel()
	t.Run("good", func(t *testing.T) {})
	t.Run("crash", func(t *testing.T) {
		t.Parallel()
		time.Sleep(100 * time.Millisecond)
		go func() { panic("crash") }()
		time.Sleep(time.Minute)
	})
}

func TestAnother(t *testing.T) { wait(t) }

// wait has subtests that run in parallel with all others.
func wait(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"1", "2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			time.Sleep(500 * time.Millisecond)
		})
	}
}

func TestHang(t *testing.T) {
	t.Run("hang", func(t *testing.T) { select {} })
}

func TestLast(t *testing.T) {}
