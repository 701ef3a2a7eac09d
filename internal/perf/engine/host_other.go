//go:build !linux

package engine

import (
	"errors"
	"fmt"
)

func hugeMemory(int) ([]byte, func() error, error) {
	return nil, nil, errors.New("--hugepages: only on Linux")
}

func machineCPUs() int { return 0 }

// CheckCPU returns an error if a loop cannot be pinned to the processor cpu.
func CheckCPU(cpu int) error { return fmt.Errorf("--cpu %d: only on Linux", cpu) }

func pinTo(cpus []int) (func(), error) { return nil, CheckCPU(cpus[0]) }

func nodeOfCPU(int) string { return "" }
