package result

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counters are changes of the kernel's counters during a run, by their names in the folders
// counters and hw_counters of a port. The names of counters of its network device have the prefix
// NetDevice or Ethtool.
type Counters map[string]int64

// Prefixes of the names of a network device's counters: NetDevice for its statistics, Ethtool for
// those of its driver.
const (
	NetDevice = "netdev_"
	Ethtool   = "ethtool_"
)

// Counters of errors, losses and repetitions on InfiniBand, RoCE and soft-RoCE.
var troubles = []string{"symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
	"local_link_integrity_errors", "excessive_buffer_overrun_errors", "out_of_sequence", "packet_seq_err",
	"local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err", "rx_icrc_encapsulated", "roce_slow_restart",
	"retry_exceeded_err", "rcvd_seq_err", "rcvd_rnr_err", "retry_rnr_exceeded_err", "send_rnr_err", "completer_retry_err",
	"duplicate_request", "out_of_seq_request"}

// Counters of errors and losses of a network device.
var netTroubles = []string{"rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_missed_errors", "rx_fifo_errors",
	"tx_carrier_errors"}

// Counters of waits for credits and of ECN packets, with the names of mlx5, bnxt_re and irdma.
var congestions = []string{"port_xmit_wait", "np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled",
	"rp_cnp_ignored", "rx_cnp_pkts", "tx_cnp_pkts", "rx_ecn_marked_pkts", "cnpHandled", "cnpSent", "RxECNMrkd"}

// Until returns the changes from c to later. It omits counters that have not changed.
func (c Counters) Until(later Counters) Counters {
	d := Counters{}
	for name, v := range later {
		if v != c[name] {
			d[name] = v - c[name]
		}
	}
	return d
}

// Add adds the counters of another run or port, and returns the sum.
func (c Counters) Add(more Counters) Counters {
	sum := Counters{}
	maps.Copy(sum, c)
	for name, v := range more {
		sum[name] += v
	}
	return sum
}

// Errors returns the counters above zero that count lost, damaged or repeated packets.
func (c Counters) Errors() Counters {
	return c.only(func(name string, n int64) bool {
		net, isNet := strings.CutPrefix(name, NetDevice)
		return n > 0 && (isNet && slices.Contains(netTroubles, net) || slices.Contains(troubles, name))
	})
}

// Congestion returns the counters of waits and ECN, including those that are zero.
func (c Counters) Congestion() Counters {
	return c.only(func(name string, _ int64) bool { return slices.Contains(congestions, name) })
}

// Pauses returns the counters of pause frames above zero.
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

// Traffic is the number of bytes, headers included, and of packets through a port in one direction.
// A number is 0 if it is unknown.
type Traffic struct{ Bytes, Packets int64 }

// Sent returns the traffic that the port has sent.
func (c Counters) Sent() Traffic { return c.traffic("port_xmit_", "sent_pkts", NetDevice+"tx_") }

// Received returns the traffic that the port has received.
func (c Counters) Received() Traffic { return c.traffic("port_rcv_", "rcvd_pkts", NetDevice+"rx_") }

// traffic returns the port's traffic. If the port does not count bytes, like soft-RoCE, traffic
// returns that of the network device, unless the network device has counted fewer packets than the
// port. That happens because messages within a host do not pass the network device. The kernel
// counts a port's data in words of 4 bytes.
func (c Counters) traffic(port, soft, netdev string) Traffic {
	t := Traffic{4 * c[port+"data"], max(c[port+"packets"], c[soft])}
	if t.Bytes == 0 && c[netdev+"packets"] >= t.Packets {
		t.Bytes, t.Packets = c[netdev+"bytes"], max(t.Packets, c[netdev+"packets"])
	}
	return t
}
