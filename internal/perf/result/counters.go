package result

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counters contains changes of the kernel's counters during a run, by name. The counters of a port
// have the names of their files in the port's folders counters and hw_counters. The names of the
// counters of its network device begin with NetDevice or Ethtool.
type Counters map[string]int64

// Prefixes of the names of a network device's counters. The kernel's statistics of the device have
// the prefix NetDevice. The statistics of the device's driver have the prefix Ethtool.
const (
	NetDevice = "netdev_"
	Ethtool   = "ethtool_"
)

// troubles lists the counters of errors, losses and repetitions on InfiniBand, RoCE and soft-RoCE.
var troubles = []string{"symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
	"local_link_integrity_errors", "excessive_buffer_overrun_errors", "out_of_sequence", "packet_seq_err",
	"local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err", "rx_icrc_encapsulated", "roce_slow_restart",
	"retry_exceeded_err", "rcvd_seq_err", "rcvd_rnr_err", "retry_rnr_exceeded_err", "send_rnr_err", "completer_retry_err",
	"duplicate_request", "out_of_seq_request"}

// netTroubles lists the counters of errors and losses of a network device.
var netTroubles = []string{"rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_missed_errors", "rx_fifo_errors",
	"tx_carrier_errors"}

// congestions lists the counters that count ECN packets or waits for credits. The names are those
// that mlx5, bnxt_re and irdma use.
var congestions = []string{"port_xmit_wait", "np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled",
	"rp_cnp_ignored", "rx_cnp_pkts", "tx_cnp_pkts", "rx_ecn_marked_pkts", "cnpHandled", "cnpSent", "RxECNMrkd"}

// Until returns the changes from c to the later counters. It omits counters that have not changed.
func (c Counters) Until(later Counters) Counters {
	d := Counters{}
	for name, v := range later {
		if v != c[name] {
			d[name] = v - c[name]
		}
	}
	return d
}

// Add returns the sum of c and the counters of another run or port.
func (c Counters) Add(more Counters) Counters {
	sum := Counters{}
	maps.Copy(sum, c)
	for name, v := range more {
		sum[name] += v
	}
	return sum
}

// Errors returns those counters of lost, damaged or repeated packets that are above zero.
func (c Counters) Errors() Counters {
	return c.only(func(name string, n int64) bool {
		net, isNet := strings.CutPrefix(name, NetDevice)
		return n > 0 && (isNet && slices.Contains(netTroubles, net) || slices.Contains(troubles, name))
	})
}

// Congestion returns the counters that count ECN packets or waits for credits, including those that
// are zero.
func (c Counters) Congestion() Counters {
	return c.only(func(name string, _ int64) bool { return slices.Contains(congestions, name) })
}

// Pauses returns those counters of pause frames that are above zero.
func (c Counters) Pauses() Counters {
	return c.only(func(name string, n int64) bool {
		return n > 0 && strings.HasPrefix(name, Ethtool) && strings.Contains(name, "pause")
	})
}

func (c Counters) only(fits func(name string, n int64) bool) Counters {
	some := Counters{}
	for name, n := range c {
		if fits(name, n) {
			some[name] = n
		}
	}
	return some
}

// Total returns the sum of the counters.
func (c Counters) Total() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// List returns each counter as "name value", sorted.
func (c Counters) List() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		all = append(all, fmt.Sprintf("%s %d", name, c[name]))
	}
	return all
}

// Traffic is what goes through a port in one direction: the number of bytes, including headers, and
// the number of packets. Unknown numbers are 0.
type Traffic struct{ Bytes, Packets int64 }

// Sent returns the traffic that the port has sent.
func (c Counters) Sent() Traffic { return c.traffic("port_xmit_", "sent_pkts", NetDevice+"tx_") }

// Received returns the traffic that the port has received.
func (c Counters) Received() Traffic { return c.traffic("port_rcv_", "rcvd_pkts", NetDevice+"rx_") }

// traffic returns the port's traffic. The kernel counts a port's data in words of 4 bytes. Some
// ports, for example those of soft-RoCE, do not count bytes. For such a port the method returns the
// traffic of the network device, unless the network device has counted fewer packets than the port.
// That happens because messages within a host do not go through the network device.
func (c Counters) traffic(port, soft, netdev string) Traffic {
	t := Traffic{4 * c[port+"data"], max(c[port+"packets"], c[soft])}
	if t.Bytes == 0 && c[netdev+"packets"] >= t.Packets {
		t.Bytes, t.Packets = c[netdev+"bytes"], max(t.Packets, c[netdev+"packets"])
	}
	return t
}
