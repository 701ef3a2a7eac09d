package udat

import (
	"maps"
	"slices"
	"time"
)

// pollInterval is how often an adapter with active endpoints polls its dispatchers, so that a
// broken connection is reported although no call takes completions.
const pollInterval = 100 * time.Millisecond

// activate counts an endpoint that begins to connect, and starts the polling of the dispatchers.
func (ia *IA) activate() {
	ia.mu.Lock()
	ia.activeEPs++
	ia.mu.Unlock()
	ia.repeat(&ia.polling, ia.pollEvery, func() {
		for _, e := range ia.dispatchers() {
			e.poll()
		}
	})
}

func (ia *IA) deactivate() {
	ia.mu.Lock()
	ia.activeEPs--
	ia.mu.Unlock()
}

// repeat runs step in the background at an interval until no endpoint is active. *running, guarded
// by ia.mu, is set meanwhile; if it is set already nothing is started.
func (ia *IA) repeat(running *bool, interval time.Duration, step func()) {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if *running {
		return
	}
	*running = true
	ia.flusher.every(interval, func() (done bool) {
		ia.mu.Lock()
		*running = ia.activeEPs > 0
		done = !*running
		ia.mu.Unlock()
		if !done {
			step()
		}
		return done
	})
}

// dispatchers returns all dispatchers to which completions can come.
func (ia *IA) dispatchers() []*EVD {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	var list []*EVD
	for _, h := range ia.objects[HandleEVD] {
		list = append(list, h.(*EVD))
	}
	if sink := ia.sink.Load(); sink != nil {
		list = append(list, sink)
	}
	return list
}

// posters returns the endpoints that may have posts under way.
func (ia *IA) posters() []*EP {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	return slices.Collect(maps.Keys(ia.posting))
}
