package udat

import (
	"maps"
	"slices"
	"time"
)

// activate counts an endpoint that begins to connect; deactivate undoes the count.
func (ia *IA) activate() {
	ia.mu.Lock()
	ia.activeEPs++
	ia.mu.Unlock()
}

func (ia *IA) deactivate() {
	ia.mu.Lock()
	ia.activeEPs--
	ia.mu.Unlock()
}

// posters returns the endpoints that may have posts in progress.
func (ia *IA) posters() []*EP {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	return slices.Collect(maps.Keys(ia.posting))
}

// poller polls dispatchers of an adapter. It polls a dispatcher that has connections while no
// blocked call and no arm loop drains the dispatcher's completions. It polls all such dispatchers
// together, once per interval.
type poller struct {
	interval time.Duration
	poll     func(*EVD) // may add the dispatcher again

	mu     ranked[rankPoller]
	timer  *time.Timer // runs while list is not empty
	list   []*EVD
	spare  []*EVD // memory to reuse for the next list
	closed bool
}

func (p *poller) init(interval time.Duration, poll func(*EVD)) {
	p.interval, p.poll = interval, poll
	p.timer = time.AfterFunc(interval, p.run)
	p.timer.Stop()
}

// add schedules one poll of the dispatcher, at the end of the interval.
func (p *poller) add(e *EVD) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, e)
	if len(p.list) == 1 && !p.closed {
		p.timer.Reset(p.interval)
	}
}

func (p *poller) run() {
	p.mu.Lock()
	list := p.list
	p.list, p.spare = p.spare, nil
	p.mu.Unlock()
	for _, e := range list {
		p.poll(e)
	}
	clear(list)
	p.mu.Lock()
	p.spare = list[:0]
	p.mu.Unlock()
}

func (p *poller) close() {
	p.mu.Lock()
	p.closed = true
	p.timer.Stop()
	p.mu.Unlock()
}
