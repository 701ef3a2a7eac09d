package softnic

import (
	"maps"
	"slices"

	"github.com/godat/godat/udat/internal/fabric"
)

// Remove removes the device: AsyncDeviceFatal, EventRemoved on every connection, and all work is
// flushed. Only Close is left.
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

// Overrun fails a completion queue as an overrun does: AsyncCQError, and its queue pairs in error.
func (f *Faults) Overrun(c fabric.CQ) { c.(*CQ).fail() }

// Report raises an asynchronous event that has no effect on the device. One that names no queue,
// such as AsyncPortError, concerns the whole adapter: every open of it gets the event.
func (f *Faults) Report(ev fabric.AsyncEvent) {
	if ev.CQ != nil || ev.QP != nil || ev.SRQ != nil {
		f.dev.Report(ev)
		return
	}
	for _, d := range f.dev.HW.Openings() {
		d.Report(ev)
	}
}
