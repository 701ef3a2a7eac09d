package counters

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// host returns a source that reads the given files of a port and its network device.
func host(t *testing.T, driver map[string]uint64, files map[string]string) Source {
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return Source{Root: root, Driver: func(netdev string) (map[string]uint64, error) {
		if netdev != "eth1" || driver == nil {
			return nil, os.ErrNotExist
		}
		return driver, nil
	}}
}

const port = "sys/class/infiniband/mlx5_0/ports/2"

// Read returns every counter of the port, also of a second port, and skips what is not a number. It
// returns the statistics of the network device, and its driver's counters of pause frames.
func TestRead(t *testing.T) {
	files := map[string]string{
		port + "/counters/port_xmit_data": "4294967296\n", port + "/counters/port_rcv_errors": "0\n",
		port + "/hw_counters/np_cnp_sent": "7\n", port + "/hw_counters/lifespan": "10\n",
		port + "/hw_counters/broken": "N/A (no PMA)\n", port + "/hw_counters/beyond": "18446744073709551615\n",
		"sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data": "1\n",
		"sys/class/net/eth0/statistics/rx_bytes":                      "5\n",
		"sys/class/net/eth1/statistics/rx_bytes":                      "600\n",
		"sys/class/net/eth1/statistics/tx_errors":                     "1\n",
		port + "/gid_attrs/ndevs/0":                                   "", port + "/gid_attrs/ndevs/1": "eth1\n",
	}
	s := host(t, map[string]uint64{"rx_prio3_pause": 12, "rx_bytes": 1, "tx_pause_ctrl_phy": 1 << 63}, files)
	assert.Equal(t, s.NetDevice(port), "eth1")
	assert.DeepEqual(t, s.Read(port, "eth1"), result.Counters{"port_xmit_data": 4294967296, "port_rcv_errors": 0,
		"np_cnp_sent": 7, "netdev_rx_bytes": 600, "netdev_tx_errors": 1, "ethtool_rx_prio3_pause": 12})
	assert.DeepEqual(t, s.Read(port, ""), result.Counters{"port_xmit_data": 4294967296, "port_rcv_errors": 0,
		"np_cnp_sent": 7})
	assert.Equal(t, len(s.Read("sys/class/infiniband/none/ports/1", "")), 0)
	assert.Equal(t, s.NetDevice("sys/class/infiniband/none/ports/1"), "")
}

// A driver without pause frames differs from a driver whose statistics cannot be read.
func TestPauses(t *testing.T) {
	quiet := host(t, map[string]uint64{"rx_bytes": 1}, nil)
	assert.Assert(t, quiet.Pauses("eth1") != nil && len(quiet.Pauses("eth1")) == 0)
	assert.Assert(t, quiet.Pauses("eth0") == nil)
}
