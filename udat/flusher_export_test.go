package udat

import "time"

// Flusher exports flusher for tests.
type Flusher struct{ f *flusher }

func NewFlusher() Flusher      { return Flusher{newFlusher()} }
func FlusherOf(ia *IA) Flusher { return Flusher{ia.flusher} }

func (f Flusher) Watch(step func() bool)                  { f.f.watch(step) }
func (f Flusher) Every(d time.Duration, step func() bool) { f.f.every(d, step) }
func (f Flusher) Close()                                  { f.f.close() }
func PollUntil(deadline time.Time, step func() bool)      { pollUntil(deadline, step) }

// Running reports whether the goroutine runs.
func (f Flusher) Running() bool {
	f.f.mu.Lock()
	defer f.f.mu.Unlock()
	return f.f.running
}

// PollMax is the longest pause between two calls of a step.
const PollMax = pollMax
