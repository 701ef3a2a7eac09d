package udat_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestFlusher: each step is repeated until it is done. The pauses of a step grow to PollMax; a new
// step begins with short pauses. The goroutine runs only while there are steps. synctest fails if
// the goroutine outlives Close.
func TestFlusher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := udat.NewFlusher()
		defer f.Close()
		for range 2 { // it starts anew
			assert.Assert(t, !f.Running())
			begun := time.Now()
			var slow, beats []time.Duration
			var end atomic.Bool
			f.Watch(func() bool { slow = append(slow, time.Since(begun)); return end.Load() })
			f.Every(100*time.Millisecond, func() bool { beats = append(beats, time.Since(begun)); return len(beats) == 5 })
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, len(beats), 5)
			for i, b := range beats {
				assert.Equal(t, b, time.Duration(i+1)*100*time.Millisecond)
			}
			assert.Assert(t, slow[0] < time.Millisecond, "the first look came after %v", slow[0])
			assert.Assert(t, len(slow) > 95 && len(slow) < 120, "%d looks in a second", len(slow))
			for i := 1; i < len(slow); i++ {
				assert.Assert(t, slow[i]-slow[i-1] <= udat.PollMax)
			}

			added, took := time.Now(), time.Duration(0)
			f.Watch(func() bool { took = time.Since(added); return true })
			time.Sleep(time.Millisecond)
			synctest.Wait()
			assert.Assert(t, took > 0 && took < time.Millisecond, "the new step was made after %v", took)
			assert.Assert(t, f.Running())
			end.Store(true)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Assert(t, !f.Running())
			n := len(slow)
			time.Sleep(time.Second)
			synctest.Wait()
			assert.Equal(t, len(slow), n, "it is done")
		}
		f.Watch(func() bool { return false }) // which Close ends
	})
}

// TestFlusherClosed: a step that is added to a closed flusher never runs.
func TestFlusherClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := udat.NewFlusher()
		f.Close()
		f.Watch(func() bool { t.Error("it runs"); return true })
		time.Sleep(time.Second)
	})
}

// TestPollUntil: the wait ends as soon as the step is done; if it is never done, the wait ends at
// the deadline.
func TestPollUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		n := 0
		udat.PollUntil(begun.Add(time.Second), func() bool { n++; return n == 3 })
		assert.Equal(t, n, 3)
		assert.Assert(t, time.Since(begun) < time.Millisecond)
		udat.PollUntil(begun.Add(time.Second), func() bool { return false })
		assert.Assert(t, time.Since(begun) >= time.Second && time.Since(begun) <= time.Second+udat.PollMax)
		udat.PollUntil(begun, func() bool { n++; return true })
		assert.Equal(t, n, 4, "a deadline that has passed: the step is made once")
	})
}
