package doctor

import "github.com/godat/godat/internal/perf/firewall"

// kernel is what doctor asks the kernel beside files. Tests set it.
type kernel struct {
	rdma   func() (rdmaState, error)
	pfc    func(netdev string) (priorities []int, err error)
	rules  func() (*firewall.Rules, error)
	locks  func() bool                                        // the locked-memory limit does not bind this process
	number func(path string) (major, minor uint32, err error) // of a device file
}

// rdmaState is what the kernel says of its RDMA devices to this network namespace.
type rdmaState struct {
	exclusive bool // a device belongs to one network namespace; else all namespaces see it
	devices   map[string]rdmaDevice
}

type rdmaDevice struct {
	driver  driver
	netdevs map[int]string // by port, as far as they are in this network namespace
}

// driver is the kernel's number of a driver of RDMA devices.
type driver uint32

const (
	driverRXE driver = 14
	driverSIW driver = 18
)

// providers are the names of libibverbs' provider libraries, lib%s-rdmav*.so, by driver.
var providers = map[driver]string{1: "mlx5", 2: "mlx4", 3: "cxgb3", 4: "cxgb4", 5: "mthca", 6: "bnxt_re", 7: "ocrdma",
	8: "nes", 9: "irdma", 10: "vmw_pvrdma", 11: "qedr", 12: "hns", 13: "usnic", driverRXE: "rxe", 15: "hfi1verbs",
	16: "ipathverbs", 17: "efa", driverSIW: "siw", 19: "erdma", 20: "mana"}

// inSoftware reports whether the kernel moves the device's packets, so that they pass its packet
// filters. Those of hardware do not.
func (d rdmaDevice) inSoftware() bool { return d.driver == driverRXE || d.driver == driverSIW }
