package memfabric

import (
	"time"

	"github.com/godat/godat/udat/internal/softnic"
)

// A call of delay reports whether Faults.Delay still delays request s. If so, it makes a timer wake
// the link when the delay ends. The delay of a read or an atomic begins only when the read depth
// allows one more to be in flight.
func (l *link) delay(s *softnic.Slot) bool {
	_, readOut := l.qp.ReadDepths()
	if softnic.Sinks(s.WR.Opcode) && readOut > 0 && !l.try.placed {
		l.try.placed = true
		if l.readDone == nil {
			l.readDone = make([]time.Time, readOut)
		}
		oldest := &l.readDone[l.reads%len(l.readDone)]
		l.reads++
		if start := oldest.Add(l.dev.Device.Faults.Delayed()); s.Due.Before(start) {
			s.Due = start
		}
		*oldest = s.Due
	}
	if !time.Now().Before(s.Due) {
		return false
	}
	l.wakeAt(s.Due)
	return true
}
