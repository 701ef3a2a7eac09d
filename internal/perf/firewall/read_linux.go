package firewall

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Read reads the rules of this network namespace. Reading them needs CAP_NET_ADMIN. Without it Read
// returns EPERM and the rules that it could read.
func Read() (*Rules, error) {
	var r Rules
	err := r.readNFT()
	for _, none := range []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EINVAL, unix.EPROTONOSUPPORT} {
		if errors.Is(err, none) { // the kernel has no nf_tables
			err = nil
		}
	}
	return &r, errors.Join(err, r.readLegacy())
}
