package udat_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/godat/godat/udat"
)

// mCNO models a notification object.
type mCNO struct {
	cno  *udat.CNO
	must bool // it has been triggered since the last Wait that returned
	may  bool // it may have been
}

// notified records that a notification event has come: it counts for the waiter, or triggers the
// notification object.
func (e *mEVD) notified() {
	switch {
	case e.waiter != nil:
		e.waiter.notified = true
		e.mayTrigger() // it may come when the waiter has gone
	case e.cno != nil && !e.disabled:
		e.cno.must = true
	}
}

// mayTrigger records that the notification object may have been triggered, or not.
func (e *mEVD) mayTrigger() {
	if e.cno != nil && !e.disabled {
		e.cno.may = true
	}
}

// modifyCNO attaches a dispatcher to the notification object, or detaches it.
func (e *mEVD) modifyCNO(t *rapid.T) {
	if oneIn(t, 3, "detach") {
		isOK(t, e.evd.ModifyCNO(nil))
		e.cno = nil
		return
	}
	isOK(t, e.evd.ModifyCNO(e.w.cno.cno))
	e.cno = e.w.cno
	e.mayTrigger() // for what is queued
}

// waitCNO waits for the notification object if it must have been triggered, and otherwise polls it.
func (w *world) waitCNO(t *rapid.T) {
	c := w.cno
	attached := slices.ContainsFunc(w.evds, func(e *mEVD) bool { return e.cno == c })
	if attached {
		isRefused(t, c.cno.Free(), udat.InvalidState, udat.SubStateCNOInUse)
		w.shows("CNO-FREE-01")
	}
	before := make([]int, len(w.evds))
	for i, e := range w.evds {
		before[i] = e.count
	}
	timeout := patience
	if !c.must {
		timeout = 0
	}
	evd, err := c.cno.Wait(timeout)
	switch {
	case c.must && err != nil:
		t.Fatalf("the notification object has been triggered, and its wait ends with %v", err)
	case err == nil && !c.must && !c.may:
		t.Fatalf("nothing has triggered the notification object, and its wait returns")
	case err != nil:
		isRefused(t, err, udat.QueueEmpty)
		w.shows("CNO-WAIT-02")
		c.may = false
		return
	}
	if !slices.ContainsFunc(w.evds, func(e *mEVD) bool { return e.evd == evd }) {
		t.Fatalf("the notification object names the dispatcher %v", evd)
	}
	for i, e := range w.evds {
		if got := udat.Pending(e.evd); got != before[i] {
			t.Fatalf("%s: %d events are queued after a wait for the notification object, %d before", e.name, got, before[i])
		}
	}
	w.showsIf(c.must, "CNO-01 CNO-08 CNO-WAIT-03 CNO-WAIT-07")
	c.must, c.may = false, true // a trigger of the same events may be under way
}
