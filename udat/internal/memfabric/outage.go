package memfabric

// Faults returns the faults of the device.
func (d *Device) Faults() *Faults { return &d.faults }

// Lose drops the next n messages of kind m that this device sends.
func (f *Faults) Lose(m Message, n int) {
	f.dev.HW.Mu.Lock()
	defer f.dev.HW.Mu.Unlock()
	f.lose[m] = n
}

// Kill cuts the device off, as a power failure would: no message from it or to it arrives.
func (f *Faults) Kill() { f.setDead(true) }

// Revive undoes Kill. Requests with retries left continue.
func (f *Faults) Revive() { f.setDead(false) }

// setDead cuts the device off, or connects it again, and wakes the engines of the device and of its
// peers.
func (f *Faults) setDead(dead bool) {
	f.dead.Store(dead)
	for _, q := range f.dev.QPs() {
		linkOf(q).Failed()
	}
}

// Drop breaks the path of one queue pair's connection for good. Both ends run out of retries, and
// neither gets a connection event.
func (f *Faults) Drop(qpn uint32) {
	for _, q := range f.dev.QPs() {
		if q.Num() == qpn {
			linkOf(q).cut.Store(true)
			linkOf(q).Failed()
		}
	}
}
