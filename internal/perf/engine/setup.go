package engine

import (
	"cmp"
	"crypto/tls"
	"net/netip"

	"github.com/godat/godat/internal/perf/result"
)

// Setup is what an end measures with.
type Setup struct {
	Device  string       // device to measure with; empty: choose selects one
	Version string       // version of datperf
	GID     *result.Knob // entry of the device's GID table to use; nil: the connection manager's choice
	TLS     *tls.Config  // for the connections that are measured; nil: none
	CPU     *int         // processor to pin the measuring loop to; may be nil
	AnyNode bool         // run the loops on any NUMA node, not on the device's

	chosen *choice // the device, if Local has chosen it
}

// choose returns the device with which this end measures. The argument local is the address of this
// end of the control connection.
func (s *Setup) choose(local netip.Addr) (choice, error) {
	if s.chosen != nil {
		return *s.chosen, nil
	}
	c, err := choose(s.Device, local)
	if err == nil {
		err = cmp.Or(c.useGID(s.GID), c.useTLS(s.TLS))
	}
	if err == nil && !s.AnyNode {
		c.useNode(sysfs)
	}
	return c, err
}
