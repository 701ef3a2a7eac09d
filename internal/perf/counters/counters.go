// Package counters reads the kernel's counters of an RDMA port and of its network device. Packages
// engine and doctor of internal/perf import it.
//
//	before := counters.System().Read("sys/class/infiniband/mlx5_0/ports/1", "eth0")
//
// Everything here may be called concurrently.
package counters

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// Source says where to read counters. Tests set its fields.
type Source struct {
	Root   string                                         // prefix of the paths in /sys
	Driver func(netdev string) (map[string]uint64, error) // statistics of a network device's driver
}

// System returns the source of this host.
func System() Source { return Source{Root: "/", Driver: driverStatistics} }

// NetDevice returns the name of a port's network device, or "" if the port has none in this network
// namespace. The argument port is the port's folder below Root, for example
// sys/class/infiniband/mlx5_0/ports/1.
func (s Source) NetDevice(port string) string {
	files, _ := filepath.Glob(filepath.Join(s.Root, port, "gid_attrs/ndevs/*"))
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && len(b) > 0 { // reading an unused entry fails
			return strings.TrimSpace(string(b))
		}
	}
	return ""
}

// Read returns counters by name. The port's counters have the kernel's names. The statistics of the
// network device have names that begin with "netdev_". The device's driver also counts pause
// frames, under names that begin with "ethtool_". The caller passes "" as netdev if the port has no
// network device. Counters that cannot be read are left out.
func (s Source) Read(port, netdev string) result.Counters {
	all := result.Counters{}
	s.folder(all, port+"/counters", "")
	s.folder(all, port+"/hw_counters", "")
	if netdev == "" {
		return all
	}
	s.folder(all, "sys/class/net/"+netdev+"/statistics", result.NetDevice)
	maps.Copy(all, s.Pauses(netdev))
	return all
}

// Pauses returns the pause frame counters of a network device's driver, or nil if they cannot be
// read. With PFC each priority has its own counter, for example ethtool_rx_prio3_pause.
func (s Source) Pauses(netdev string) result.Counters {
	stats, err := s.Driver(netdev)
	if err != nil {
		return nil
	}
	all := result.Counters{}
	for name := range stats {
		if strings.Contains(name, "pause") && stats[name] <= math.MaxInt64 {
			all[result.Ethtool+name] = int64(stats[name])
		}
	}
	return all
}

// folder reads the files of a folder and adds a counter for each one that contains a number. It
// skips the file lifespan, which is a setting.
func (s Source) folder(all result.Counters, folder, prefix string) {
	files, _ := filepath.Glob(filepath.Join(s.Root, folder, "*"))
	for _, file := range files {
		b, err := os.ReadFile(file)
		name := filepath.Base(file)
		if err != nil || name == "lifespan" {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			all[prefix+name] = n
		}
	}
}
