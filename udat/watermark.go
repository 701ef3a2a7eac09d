package udat

// SetWatermark sets and arms both high watermarks on the number of receives that the endpoint
// holds: those posted to it, or those it has taken from its shared receive queue. WatermarkInfinite
// disables a watermark. If the number exceeds the soft watermark, one asynchronous event is queued.
// If it exceeds the hard watermark, the connection breaks; a connection that is not established yet
// breaks when it is established. If the number is already too high when the call is made, the
// effect is immediate.
//
// The call is valid in every state. It returns ModelNotSupported if the endpoint has a shared
// receive queue and the device does not count the receives that each endpoint takes
// (SRQWatermarksSupported).
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

// tookMore checks the watermarks of an endpoint that holds n receives of its shared queue; ep.mu is
// held.
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

// checkWatermarks compares the number of receives that the endpoint holds with the watermarks; no
// lock is held.
func (ep *EP) checkWatermarks() {
	_, recvs := ep.sources()
	recvs.evd.poll() // completed receives do not count
	ep.mu.Lock()
	defer ep.mu.Unlock()
	w := &ep.wmark
	if w.softArmed && ep.recvs.inFlight() > w.soft {
		ep.fireSoft()
	}
	ep.breakAboveHard()
	w.rearm()
}

// breakAboveHard breaks an established connection if the endpoint holds more receives than the hard
// watermark allows; ep.mu is held.
func (ep *EP) breakAboveHard() {
	if s := ep.getState(); (s == EPConnected || s == EPDisconnectPending) && ep.aboveHard() {
		ep.breakConnection(errAboveHard)
	}
}
