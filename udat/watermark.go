package udat

// SetWatermark sets and arms both high watermarks on the number of receives that the endpoint
// holds, posted to it or taken from its shared receive queue; WatermarkInfinite disables one. More
// receives than soft make one asynchronous event; more than hard break the connection, now or when
// it is established. Counts that are already above fire at once. It is legal in every state. With a
// shared receive queue whose receives the device does not count for each endpoint
// (SRQWatermarksSupported), it is ModelNotSupported.
//
// Implements: dat_ep_set_watermark.
func (ep *EP) SetWatermark(soft, hard int) error {
	const op = "ep_set_watermark"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	if soft < WatermarkInfinite || hard < WatermarkInfinite {
		return fail(op, InvalidParameter, SubArg2, "watermarks are %d and %d, must be from 0 or WatermarkInfinite", soft,
			hard)
	}
	if ep.srq != nil && !ep.tellsTaken() {
		return fail(op, ModelNotSupported, SubNone,
			"the device does not tell how many receives of a shared queue an endpoint holds")
	}
	ep.mu.Lock()
	ep.wmark.set(soft, hard)
	if ep.srq == nil {
		ep.mu.Unlock()
		ep.checkWatermarks()
		return nil
	}
	defer ep.mu.Unlock()
	ep.recvs.mu.Lock()
	taken := 0
	if qp := ep.recvs.qp; qp != nil {
		ep.armTaken(qp)
		taken = qp.Taken()
	}
	ep.recvs.mu.Unlock()
	ep.tookMore(taken)
	return nil
}

// tookMore notes that the endpoint has taken n receives of its shared queue; ep.mu is held.
func (ep *EP) tookMore(n int) {
	w := &ep.wmark
	if w.softArmed && n > w.soft {
		ep.fireSoft()
	}
	if w.hard != WatermarkInfinite && n > w.hard {
		w.passed = true
		ep.breakAboveHard()
	}
}

func (ep *EP) fireSoft() {
	ep.wmark.softArmed = false
	ep.obj.ia.async(nil, &Event{Number: EventAsyncEPSoftHighWatermark, EP: ep, Object: ep,
		Reason: ReasonEPSoftHighWatermark})
}

// checkWatermarks compares the receives that the endpoint holds with the watermarks; no lock is
// held.
func (ep *EP) checkWatermarks() {
	_, recvs := ep.sources()
	recvs.evd.poll() // completed receives are not held
	ep.mu.Lock()
	defer ep.mu.Unlock()
	w := &ep.wmark
	if w.softArmed && ep.recvs.inFlight() > w.soft {
		ep.fireSoft()
	}
	ep.breakAboveHard()
	w.rearm()
}

// breakAboveHard breaks the connection, if there is one, of an endpoint that holds more receives
// than the hard watermark.
func (ep *EP) breakAboveHard() {
	if s := ep.getState(); (s == EPConnected || s == EPDisconnectPending) && ep.aboveHard() {
		ep.breakConnection()
	}
}
