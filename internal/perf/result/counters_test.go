package result

import (
	"testing"

	"gotest.tools/v3/assert"
)

// Until returns only the counters that have changed, for all kinds of devices.
func TestCounters(t *testing.T) {
	before := Counters{"port_xmit_data": 100, "port_rcv_errors": 3, "sent_pkts": 5, "np_cnp_sent": 1,
		"ethtool_rx_prio3_pause": 8, "netdev_tx_bytes": 1 << 40}
	after := Counters{"port_xmit_data": 1 << 32, "port_rcv_errors": 3, "sent_pkts": 15, "np_cnp_sent": 4,
		"ethtool_rx_prio3_pause": 9, "ethtool_tx_prio0_pause": 2, "netdev_tx_bytes": 1<<40 + 7, "netdev_rx_dropped": 6,
		"retry_exceeded_err": 1, "dropped": 9}
	run := before.Until(after)
	assert.Equal(t, len(run), 9)
	assert.DeepEqual(t, run.Errors(), Counters{"netdev_rx_dropped": 6, "retry_exceeded_err": 1})
	assert.DeepEqual(t, run.Congestion(), Counters{"np_cnp_sent": 3})
	assert.DeepEqual(t, run.Pauses().List(), []string{"ethtool_rx_prio3_pause 1", "ethtool_tx_prio0_pause 2"})
	assert.Equal(t, run.Pauses().Total(), int64(3))
	assert.Equal(t, run.Sent(), Traffic{4 * (1<<32 - 100), 10}) // words of 4 bytes
	// Soft-RoCE does not count bytes. Its network device does, if the packets pass that device.
	soft := Counters{"sent_pkts": 10, "rcvd_pkts": 20, "netdev_tx_packets": 1, "netdev_tx_bytes": 70,
		"netdev_rx_packets": 21, "netdev_rx_bytes": 3000}
	assert.Equal(t, soft.Sent(), Traffic{0, 10})
	assert.Equal(t, soft.Received(), Traffic{3000, 21})
	hard := Counters{"netdev_rx_packets": 21, "port_rcv_data": 3, "port_rcv_packets": 1}
	assert.Equal(t, hard.Received(), Traffic{12, 1})
	assert.Equal(t, Counters{}.Sent(), Traffic{})

	sum := run.Add(run).Add(Counters{"other": 1})
	assert.Equal(t, sum["sent_pkts"], int64(20))
	assert.Equal(t, sum["other"], int64(1))
	assert.Equal(t, run["sent_pkts"], int64(10), "a sum changes its parts")
	assert.Assert(t, Counters(nil).Add(run)["sent_pkts"] == 10 && len(Counters(nil).Until(nil)) == 0)
}
