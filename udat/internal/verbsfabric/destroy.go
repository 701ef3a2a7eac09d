package verbsfabric

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/godat/godat/cverbs"
)

// The kernel may wait without a bound when an id is destroyed: that of Linux 6.1 does so if its
// device has lost a message of the id, see noRoute. Then nobody waits for the kernel: it frees what
// it holds when it is done.
const (
	destroyTime   = time.Second     // for one id
	closeTime     = 5 * time.Second // for all calls on ids of a device
	destroyAtOnce = 4               // destroyed at one time: each takes a thread
)

// destroyID destroys an id.
func (d *device) destroyID(id *cverbs.CMID) {
	noRoute := d.noRoute(id)
	stuck := noRoute || len(d.destroying) > destroyAtOnce/2
	done := make(chan error, 1)
	d.calls.Go(func() {
		if noRoute {
			d.awaitRoute(id)
		}
		d.destroying <- struct{}{}
		done <- d.destroy(id)
		<-d.destroying
	})
	if !stuck {
		atMost(destroyTime, done)
	}
}

// noRoute reports whether messages about a connection have to wait, because the link is down or the
// host has no route from its address to the peer's. Soft-RoCE of Linux 6.1 connects no more once it
// has tried to send one, and the kernel may never destroy the id.
func (d *device) noRoute(id *cverbs.CMID) bool {
	if d.dev.VendorID != vendorRXE {
		return false
	}
	local, remote := id.LocalAddr(), id.RemoteAddr()
	if !local.IsValid() || remote.Port() == 0 {
		return false
	}
	// When the link goes down, the interface is the first to know. When it comes up, the port is the
	// last.
	if text, err := os.ReadFile("/sys/class/net/" + d.gid.NetDev + "/flags"); err == nil {
		const up = 1 // IFF_UP
		if flags, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 0, 32); err == nil && flags&up == 0 {
			return true
		}
	}
	// A file, because the verbs of a device that closes are closed already.
	state, err := os.ReadFile(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/state", d.device, d.num))
	if err == nil && !bytes.HasPrefix(state, []byte("4:")) {
		return true
	}
	local = netip.AddrPortFrom(local.Addr(), 0)
	c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(local), net.UDPAddrFromAddrPort(remote))
	if err == nil {
		c.Close() // it has sent nothing
	}
	return unreachable(err)
}

// awaitRoute waits until there is one.
func (d *device) awaitRoute(id *cverbs.CMID) {
	for pause := 10 * time.Millisecond; d.noRoute(id); pause = min(2*pause, time.Second) {
		time.Sleep(pause)
	}
}

// atMost waits for a result, but no longer than d.
func atMost(d time.Duration, done <-chan error) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return nil
	}
}
