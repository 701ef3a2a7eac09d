//go:build !linux

package doctor

import (
	"errors"

	"github.com/godat/godat/internal/perf/firewall"
)

func systemKernel() kernel {
	return kernel{
		rdma:   func() (rdmaState, error) { return rdmaState{}, errors.ErrUnsupported },
		pfc:    func(string) ([]int, error) { return nil, errors.ErrUnsupported },
		rules:  firewall.Read,
		locks:  func() bool { return true },
		number: func(string) (uint32, uint32, error) { return 0, 0, errors.ErrUnsupported },
	}
}
