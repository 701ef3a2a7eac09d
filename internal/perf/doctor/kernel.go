package doctor

import "github.com/godat/godat/internal/perf/firewall"

// kernel has the queries that doctor makes to the kernel other than reading files. Tests replace
// them.
type kernel struct {
	rdma   func() (rdmaState, error)
	pfc    func(netdev string) (priorities []int, err error)
	rules  func() (*firewall.Rules, error)
	locks  func() bool                                        // the locked-memory limit does not bind this process
	number func(path string) (major, minor uint32, err error) // the device number of a device file
}

// rdmaState is the kernel's information about the RDMA devices of this network namespace.
type rdmaState struct {
	exclusive bool // a device belongs to one network namespace; else all namespaces see it
	devices   map[string]rdmaDevice
}

type rdmaDevice struct {
	driver  driver
	netdevs map[int]string // by port; only those in this network namespace
}

// driver is the kernel's number for a driver of RDMA devices.
type driver uint32

const (
	driverRXE driver = 14
	driverSIW driver = 18
)

// providers are the names of libibverbs' provider libraries, lib%s-rdmav*.so, by driver.
var providers = map[driver]string{1: "mlx5", 2: "mlx4", 3: "cxgb3", 4: "cxgb4", 5: "mthca", 6: "bnxt_re", 7: "ocrdma",
	8: "nes", 9: "irdma", 10: "vmw_pvrdma", 11: "qedr", 12: "hns", 13: "usnic", driverRXE: "rxe", 15: "hfi1verbs",
	16: "ipathverbs", 17: "efa", driverSIW: "siw", 19: "erdma", 20: "mana"}

// inSoftware reports whether the kernel processes the device's packets, so that they pass its
// packet filters. The packets of hardware bypass the kernel.
func (d rdmaDevice) inSoftware() bool { return d.driver == driverRXE || d.driver == driverSIW }
