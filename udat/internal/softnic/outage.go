package softnic

import (
	"maps"
	"slices"

	"github.com/godat/godat/udat/internal/fabric"
)

// Remove simulates the removal of the device. It reports AsyncDeviceFatal, ends every connection
// with EventRemoved, and flushes all posted requests. From then on nothing can be created or
// posted.
func (f *Faults) Remove() {
	d := f.dev
	if f.removed.Swap(true) {
		return
	}
	d.Report(fabric.AsyncEvent{Kind: fabric.AsyncDeviceFatal})
	for _, q := range d.QPs() {
		q.Fail()
	}
	d.HW.Mu.Lock()
	for c := range d.conns {
		if c.State < Over {
			c.Finish(fabric.EventRemoved, fabric.ErrDeviceRemoved)
		}
	}
	listeners := slices.Collect(maps.Keys(d.listeners))
	d.HW.Mu.Unlock()
	for _, l := range listeners {
		l.ended()
	}
}

// Overrun simulates an overrun of a completion queue. It reports AsyncCQError, and moves the queue
// pairs of the queue to the error state.
func (f *Faults) Overrun(c fabric.CQ) { c.(*CQ).fail() }

// Report raises an asynchronous event without any other effect on the device. An event that names
// no CQ, QP or SRQ, such as AsyncPortError, is reported to every opening of the adapter.
func (f *Faults) Report(ev fabric.AsyncEvent) {
	if ev.CQ != nil || ev.QP != nil || ev.SRQ != nil {
		f.dev.Report(ev)
		return
	}
	for _, d := range f.dev.HW.Openings() {
		d.Report(ev)
	}
}
