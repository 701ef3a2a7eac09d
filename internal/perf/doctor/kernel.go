package doctor

// kernel contains doctor's queries to the kernel, except those that only read files. Tests replace
// them.
type kernel struct {
	rdma   func() (rdmaState, error)
	pfc    func(netdev string) (priorities []int, err error)
	locks  func() bool                                        // this process may exceed the locked-memory limit
	number func(path string) (major, minor uint32, err error) // returns the device number of a device file
}

// rdmaState is the kernel's information about the RDMA devices of this network namespace.
type rdmaState struct {
	exclusive bool // each device belongs to one network namespace; otherwise all namespaces see all devices
	devices   map[string]rdmaDevice
}

type rdmaDevice struct {
	driver  driver
	netdevs map[int]string // network device by port; only network devices of this namespace
}

// driver is the kernel's number for a driver of RDMA devices.
type driver uint32

const (
	driverRXE driver = 14
	driverSIW driver = 18
)

// providers maps each driver to a part of the name of its provider library for libibverbs. The name
// is lib%s-rdmav*.so, with the part in place of %s.
var providers = map[driver]string{1: "mlx5", 2: "mlx4", 3: "cxgb3", 4: "cxgb4", 5: "mthca", 6: "bnxt_re", 7: "ocrdma",
	8: "nes", 9: "irdma", 10: "vmw_pvrdma", 11: "qedr", 12: "hns", 13: "usnic", driverRXE: "rxe", 15: "hfi1verbs",
	16: "ipathverbs", 17: "efa", driverSIW: "siw", 19: "erdma", 20: "mana"}
