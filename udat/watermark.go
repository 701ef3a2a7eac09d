package udat

import "sync/atomic"

// watermarks are an endpoint's high watermarks on the receives that it holds. soft and hard are guarded by ep.mu.
type watermarks struct {
	armed      atomic.Bool // some watermark is set and has not fired
	soft, hard int
	softArmed  bool
}

// SetWatermark sets and arms both high watermarks on the number of receives that the endpoint holds;
// WatermarkInfinite switches one off. More receives than soft make one asynchronous event; more than hard break the
// connection, as soon as there is one. Counts that are already above fire at once. It is legal in every state. With a
// shared receive queue the number is not known: ModelNotSupported.
//
// Implements: dat_ep_set_watermark.
func (ep *EP) SetWatermark(soft, hard int) error {
	const op = "ep_set_watermark"
	if err := ep.object().check(op, HandleEP); err != nil {
		return err
	}
	if soft < WatermarkInfinite || hard < WatermarkInfinite {
		return fail(op, InvalidParameter, SubArg2, "watermarks are %d and %d, must be from 0 or WatermarkInfinite", soft, hard)
	}
	if ep.srq != nil {
		return fail(op, ModelNotSupported, SubNone, "the device does not tell how many receives of a shared queue an endpoint holds")
	}
	ep.mu.Lock()
	ep.wmark.soft, ep.wmark.softArmed = soft, soft != WatermarkInfinite
	ep.wmark.hard = hard
	ep.wmark.armed.Store(soft != WatermarkInfinite || hard != WatermarkInfinite)
	ep.mu.Unlock()
	ep.checkWatermarks()
	return nil
}

// checkWatermarks compares the receives that the endpoint holds; no lock is held.
func (ep *EP) checkWatermarks() {
	_, recvs := ep.works()
	recvs.evd.look() // what has completed is no longer held
	ep.mu.Lock()
	defer ep.mu.Unlock()
	w := &ep.wmark
	if w.softArmed && ep.recvs.work.outstanding() > w.soft {
		w.softArmed = false
		ep.obj.ia.async(nil, &Event{Number: EventAsyncEPSoftHighWatermark, EP: ep, Object: ep, Reason: ReasonEPSoftHighWatermark})
	}
	if s := ep.getState(); (s == EPConnected || s == EPDisconnectPending) && ep.aboveHard() {
		ep.apply(causeBroken, nil)
	}
	w.armed.Store(w.softArmed || w.hard != WatermarkInfinite)
}

// aboveHard says whether the endpoint holds more receives than it may; ep.mu is held.
func (ep *EP) aboveHard() bool {
	hard := ep.wmark.hard
	return hard != WatermarkInfinite && ep.recvs.work.outstanding() > hard
}
