package counters

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// driverStatistics returns the statistics of a network device's driver, as ethtool -S prints them.
func driverStatistics(netdev string) (map[string]uint64, error) {
	// From linux/ethtool.h.
	const getSetInfo, getStrings, getStats, statsSet, nameLength, most = 0x37, 0x1b, 0x1d, 1, 32, 1 << 16
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	order := binary.NativeEndian
	call := func(b []byte) error {
		r, err := unix.NewIfreq(netdev)
		if err != nil {
			return err
		}
		// The kernel expects the name first, and then the pointer to the command.
		var request struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(request.name[:], r.Name())
		request.data = unsafe.Pointer(&b[0])
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		runtime.KeepAlive(b)
		if errno != 0 {
			return errno
		}
		return nil
	}
	info := make([]byte, 20) // command, reserved, mask of 8 bytes, count
	order.PutUint32(info, getSetInfo)
	order.PutUint64(info[8:], 1<<statsSet)
	if err := call(info); err != nil {
		return nil, err
	}
	n := int(order.Uint32(info[16:]))
	if order.Uint64(info[8:]) == 0 || n == 0 || n > most {
		return nil, unix.EOPNOTSUPP
	}
	names := make([]byte, 12+n*nameLength) // command, set, length
	order.PutUint32(names, getStrings)
	order.PutUint32(names[4:], statsSet)
	order.PutUint32(names[8:], uint32(n))
	values := make([]byte, 8+8*n) // command, number
	order.PutUint32(values, getStats)
	order.PutUint32(values[4:], uint32(n))
	if err := call(names); err != nil {
		return nil, err
	}
	if err := call(values); err != nil {
		return nil, err
	}
	all := map[string]uint64{}
	for i := range n {
		all[unix.ByteSliceToString(names[12+i*nameLength:][:nameLength])] = order.Uint64(values[8+8*i:])
	}
	return all, nil
}
