package udat

// attach adds the source as a stream of completions, with these completion flags, to its
// dispatcher.
func (s *source) attach(op string, flags CompletionFlags) error {
	e := s.evd
	e.mu.Lock()
	defer e.unlockLater()
	if !e.discard {
		controlled := streams{n: 1, flags: flags}.consumerControlled()
		switch {
		case e.streams.n > e.streams.replaced && e.streams.flags != flags:
			return fail(op, InvalidParameter, attrArgument(op),
				"completion flags %v differ from %v of the other streams on the dispatcher", flags, e.streams.flags)
		case controlled && e.flags&^(EVDDTO|EVDRMRBind) != 0:
			return fail(op, InvalidParameter, attrArgument(op),
				"completion flags %v need a dispatcher that takes completions only, this one takes %v: create another dispatcher "+
					"for them, and a CNO to wait for both", flags, e.flags)
		case controlled && e.waiting.blocked() && e.waiting.threshold != 1:
			return fail(op, InvalidState, SubStateEVDWaiter,
				"completion flags %v, and a call waits for %d events on the dispatcher: its threshold must be 1", flags,
				e.waiting.threshold)
		}
	}
	if err := e.fit(op, e.capacity+s.inflight.most()); err != nil {
		return err
	}
	e.capacity += s.inflight.most()
	e.sources.add(s)
	e.streams.n++
	if e.streams.n == e.streams.replaced+1 {
		e.streams.flags, e.waiting.armed = flags, false
		e.watch()
	}
	return nil
}

// detach removes the stream from its dispatcher, so that the stream queues no more events. The
// completions of the stream that are on the completion queue are dropped now, because their room is
// given back.
func (s *source) detach() {
	e := s.evd
	e.mu.Lock()
	defer e.unlockLater()
	e.sources.remove(s)
	s.dropDeferred()
	e.drain()
	e.release(s.inflight.most())
	if e.streams.n--; e.streams.n == 0 {
		e.watch()
	}
}

// attachShared adds to the source's dispatcher a queue pair that receives from a shared queue. The
// parameter depth is the depth of this queue. The dispatcher passes the completions of the queue
// pair's receives to the source.
func (s *source) attachShared(op string, qpn uint32, queue sharedQueue, depth int) error {
	e := s.evd
	e.mu.Lock()
	defer e.mu.Unlock()
	sh := e.shares[queue]
	if sh == nil {
		if err := e.fit(op, e.capacity+depth); err != nil {
			return err
		}
		sh = &share{depth: depth}
		e.capacity += depth
		if e.shares == nil {
			e.shares, e.shared = make(map[sharedQueue]*share), make(map[uint32]sharedSource)
		}
		e.shares[queue] = sh
	}
	sh.sources++
	e.shared[qpn] = sharedSource{s, queue}
	return nil
}

// detachShared drains the last completions of a queue pair that has been closed. It then forgets
// the number of the queue pair, unless the device has already given the number to another queue
// pair.
func (s *source) detachShared(qpn uint32, queue sharedQueue) {
	e := s.evd
	e.mu.Lock()
	defer e.unlockLater()
	e.drain()
	e.rouse()
	if e.shared[qpn].source == s {
		delete(e.shared, qpn)
	}
	sh := e.shares[queue]
	if sh.sources--; sh.sources == 0 {
		e.release(sh.depth)
		delete(e.shares, queue)
	}
}

// releaseDeferred queues the events that deliver has deferred. Later events are not deferred.
func (s *source) releaseDeferred() {
	s.evd.mu.Lock()
	defer s.evd.mu.Unlock()
	s.pushDeferred()
	s.evd.rouse()
}

// releaseDeferredAfter queues the connection's event ev on the dispatcher dest, which may be nil,
// and the deferred events on the dispatcher of the source. If both are the same dispatcher, ev is
// queued first, and the dispatcher stays locked until all events are queued. For two dispatchers
// DAT promises no order. In that case the deferred events are queued first, so that none is still
// deferred when the Consumer has dequeued ev.
func (s *source) releaseDeferredAfter(dest *EVD, ev *Event) {
	if dest != s.evd {
		s.releaseDeferred()
		dest.post(ev)
		return
	}
	dest.mu.Lock()
	defer dest.mu.Unlock()
	dest.push(ev, true)
	s.pushDeferred()
	dest.rouse()
}

// pushDeferred does the same as releaseDeferred, except that the caller holds the dispatcher's lock
// and calls rouse.
func (s *source) pushDeferred() {
	deferred := s.deferred
	s.deferring, s.deferred = false, nil
	for i := range deferred {
		s.evd.push(&deferred[i].ev, deferred[i].notify)
	}
}

// addReplaced adds n to the number of the dispatcher's streams that Modify is replacing.
func (s *source) addReplaced(n int) {
	s.evd.mu.Lock()
	s.evd.streams.replaced += n
	s.evd.mu.Unlock()
}

// restoreFlags restores the dispatcher's completion flags after the replacement of a stream has
// failed.
func (s *source) restoreFlags(f CompletionFlags) {
	s.evd.mu.Lock()
	s.evd.streams.flags = f
	s.evd.mu.Unlock()
}

// addConnected adds n, which is 1 or -1, to the dispatcher's number of connected streams.
func (s *source) addConnected(n int) {
	e := s.evd
	e.mu.Lock()
	defer e.mu.Unlock()
	e.connected += n
	e.cover()
	if e.connected == 0 {
		e.watch()
	}
}
