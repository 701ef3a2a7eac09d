package udat

import "time"

// pollInterval is how often an adapter with active endpoints polls its dispatchers, so that a
// broken connection is reported although no call takes completions.
const pollInterval = 100 * time.Millisecond

// activate counts an endpoint that begins to connect, and starts the polling of the dispatchers.
func (ia *IA) activate() {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	ia.activeEPs++
	if !ia.polling {
		ia.polling = true
		ia.flusher.every(ia.pollEvery, ia.pollDispatchers)
	}
}

func (ia *IA) deactivate() {
	ia.mu.Lock()
	ia.activeEPs--
	ia.mu.Unlock()
}

// pollDispatchers drains the dispatchers; it is done when no endpoint is active.
func (ia *IA) pollDispatchers() (done bool) {
	ia.mu.Lock()
	ia.polling = ia.activeEPs > 0
	done = !ia.polling
	ia.mu.Unlock()
	if !done {
		for _, e := range ia.dispatchers() {
			e.poll()
		}
	}
	return done
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
