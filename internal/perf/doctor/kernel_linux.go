package doctor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

func systemKernel() kernel {
	return kernel{rdma: askRDMA, pfc: askPFC, locks: locksFreely,
		number: deviceNumber}
}

// Commands and attributes of RDMA's netlink, from rdma/rdma_netlink.h.
const (
	nldev            = 5 << 10 // RDMA_NL_NLDEV
	nldevGet         = nldev | 1
	nldevPortGet     = nldev | 5
	nldevSysGet      = nldev | 6
	nldevChardevGet  = nldev | 15
	nldevIndex       = 1
	nldevName        = 2
	nldevPort        = 3
	nldevNetdev      = 51
	nldevNamespaces  = 66
	nldevChardevType = 69
	nldevDriver      = 73
)

// askRDMA asks the kernel for the namespace mode, the devices, and the network devices of their
// ports.
func askRDMA() (rdmaState, error) {
	s := rdmaState{devices: map[string]rdmaDevice{}}
	conn, err := netlink.Dial(unix.NETLINK_RDMA, nil)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	ask := func(command uint16, flags netlink.HeaderFlags, attr func(*netlink.AttributeEncoder)) ([]map[uint16][]byte,
		error) {
		e := netlink.NewAttributeEncoder()
		attr(e)
		b, err := e.Encode()
		if err != nil {
			return nil, err
		}
		replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(command),
			Flags: netlink.Request | flags}, Data: b})
		var all []map[uint16][]byte
		for _, r := range replies {
			all = append(all, attributes(r.Data))
		}
		return all, err
	}
	nothing := func(*netlink.AttributeEncoder) {}
	if system, err := ask(nldevSysGet, 0, nothing); err == nil && len(system) == 1 {
		mode := system[0][nldevNamespaces]
		s.exclusive = len(mode) == 1 && mode[0] == 0
	}
	devices, err := ask(nldevGet, netlink.Dump, nothing)
	if err != nil {
		return s, err
	}
	for _, d := range devices {
		if len(d[nldevIndex]) != 4 {
			continue
		}
		index := binary.NativeEndian.Uint32(d[nldevIndex])
		of := func(e *netlink.AttributeEncoder) { e.Uint32(nldevIndex, index) }
		one := rdmaDevice{netdevs: map[int]string{}}
		ports, _ := ask(nldevPortGet, netlink.Dump, of)
		for _, p := range ports {
			if len(p[nldevPort]) == 4 && p[nldevNetdev] != nil {
				one.netdevs[int(binary.NativeEndian.Uint32(p[nldevPort]))] = text(p[nldevNetdev])
			}
		}
		files, err := ask(nldevChardevGet, 0, func(e *netlink.AttributeEncoder) {
			of(e)
			e.String(nldevChardevType, "uverbs")
		})
		if err == nil && len(files) == 1 && len(files[0][nldevDriver]) == 4 {
			one.driver = driver(binary.NativeEndian.Uint32(files[0][nldevDriver]))
		}
		s.devices[text(d[nldevName])] = one
	}
	return s, nil
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}

// askPFC returns the priorities of a network device that have priority flow control enabled.
func askPFC(netdev string) ([]int, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// From linux/dcbnl.h: a request is the family, the command, two bytes of padding, and then
	// attributes.
	const getIEEE, ifName, ieee, ieeePFC = 21, 1, 13, 2
	e := netlink.NewAttributeEncoder()
	e.String(ifName, netdev)
	b, err := e.Encode()
	if err != nil {
		return nil, err
	}
	replies, err := conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETDCB, Flags: netlink.Request},
		Data:   append([]byte{unix.AF_UNSPEC, getIEEE, 0, 0}, b...)})
	if err != nil {
		return nil, err
	}
	for _, r := range replies {
		if len(r.Data) < 4 {
			continue
		}
		if pfc := attributes(attributes(r.Data[4:])[ieee])[ieeePFC]; len(pfc) > 1 {
			on := []int{}
			for prio := range 8 {
				if pfc[1]&(1<<prio) != 0 { // the second byte is the bit mask of the enabled priorities
					on = append(on, prio)
				}
			}
			return on, nil
		}
	}
	return nil, unix.ENODATA
}

// locksFreely reports whether this process may lock more memory than its limit: whether it has
// CAP_IPC_LOCK in the initial user namespace. It asks the kernel to lock more addresses than the
// limit permits. No memory is mapped to these. It does not use /proc, because a chroot often lacks
// /proc.
func locksFreely() bool {
	limit, _ := MemlockLimit()
	b, err := unix.Mmap(-1, 0, int(limit)+os.Getpagesize(), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return false
	}
	defer unix.Munmap(b)
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MLOCK_ONFAULT)
	return errno == 0
}

func deviceNumber(path string) (major, minor uint32, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, 0, fmt.Errorf("%s is not a device file", path)
	}
	return unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)), nil
}
