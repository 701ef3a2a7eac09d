package udat_test

import (
	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// mark is a watermark that makes one asynchronous event for each time that it is set.
type mark struct {
	value int
	armed bool
	due   int // events that must come
	rules string
}

// set sets and arms the watermark.
func (m *mark) set(value int) { m.value, m.armed = value, true }

// passed records that the event must come, if the watermark is armed.
func (m *mark) passed(rules string) {
	if m.armed {
		m.armed, m.rules = false, rules
		m.due++
	}
}

// came handles an event of the watermark, which must be expected.
func (m *mark) came(w *world, t *rapid.T, what string) {
	if m == nil || m.due == 0 {
		t.Fatalf("a watermark event of %s that nothing has made", what)
	}
	m.due--
	w.shows(m.rules)
}

// setWatermark sets the high watermarks of an endpoint: the soft one in every state, the hard one
// while it is connected.
func (w *world) setWatermark(t *rapid.T) {
	ep := w.anEP(t)
	if ep.shared {
		t.Skip()
	}
	soft, hard := rapid.IntRange(1, 5).Draw(t, "soft"), udat.WatermarkInfinite
	if ep.state == udat.EPConnected && ep.peer.state == udat.EPConnected && oneIn(t, 4, "hard") {
		hard = rapid.IntRange(1, 5).Draw(t, "hard")
	}
	isRefused(t, ep.ep.SetWatermark(-2, hard), udat.InvalidParameter)
	isOK(t, ep.ep.SetWatermark(soft, hard))
	w.note("\twatermarks %d and %d, %d receives", soft, hard, len(ep.recvs))
	ep.hard = hard
	ep.soft.set(soft)
	ep.holds("EP-WMARK-04")
}

// holds checks whether the number of receives that the endpoint holds has passed its watermarks.
func (ep *mEP) holds(rules string) {
	if len(ep.recvs) > ep.soft.value {
		ep.soft.passed("EP-WMARK-01 EP-WMARK-02 " + rules)
	}
	if ep.hard == udat.WatermarkInfinite || len(ep.recvs) <= ep.hard || !ep.moving() {
		return
	}
	ep.hard = udat.WatermarkInfinite
	ep.marked = true
	peer := ep.peer
	ep.end("EP-WMARK-03 "+rules, udat.EventConnectionBroken)
	peer.end("", udat.EventConnectionBroken, udat.EventConnectionDisconnected)
	ep.w.brokeEP = true
}

// unmark disables the watermarks of an endpoint before steps whose effect on them the model cannot
// predict.
func (ep *mEP) unmark(t *rapid.T) {
	if ep.shared || (!ep.soft.armed && ep.hard == udat.WatermarkInfinite && !ep.marked) {
		return
	}
	isOK(t, ep.ep.SetWatermark(udat.WatermarkInfinite, udat.WatermarkInfinite))
	ep.soft.armed, ep.hard, ep.marked = false, udat.WatermarkInfinite, false
}
