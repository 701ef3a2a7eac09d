//go:build !linux

package doctor

import (
	"errors"
)

func systemKernel() kernel {
	return kernel{
		rdma:   func() (rdmaState, error) { return rdmaState{}, errors.ErrUnsupported },
		pfc:    func(string) ([]int, error) { return nil, errors.ErrUnsupported },
		locks:  func() bool { return true },
		number: func(string) (uint32, uint32, error) { return 0, 0, errors.ErrUnsupported },
	}
}
