package udat

import "time"

// Flusher gives tests what waits in the background of an adapter.
type Flusher struct{ f *flusher }

func NewFlusher() Flusher      { return Flusher{newFlusher()} }
func FlusherOf(ia *IA) Flusher { return Flusher{ia.flusher} }

func (f Flusher) Watch(step func() bool)                  { f.f.watch(step) }
func (f Flusher) Every(d time.Duration, step func() bool) { f.f.every(d, step) }
func (f Flusher) Close()                                  { f.f.close() }
func PollUntil(deadline time.Time, step func() bool)      { pollUntil(deadline, step) }

// Running says whether the goroutine runs.
func (f Flusher) Running() bool {
	f.f.mu.Lock()
	defer f.f.mu.Unlock()
	return f.f.running
}

// PollMax is the longest pause between two looks at work that must complete.
const PollMax = pollMax
