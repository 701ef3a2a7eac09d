package engine

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// hugePage is the size of the kernel's default huge pages on amd64 and arm64.
const hugePage = 2 << 20

// hugeMemory returns at least n zeroed bytes in huge pages, and a function that frees the memory.
func hugeMemory(n int) ([]byte, func() error, error) {
	n = (n + hugePage - 1) &^ (hugePage - 1)
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB|unix.MAP_POPULATE)
	if err != nil {
		return nil, nil, fmt.Errorf("--hugepages: %d pages of 2 MiB wanted: %w (sysctl vm.nr_hugepages=N reserves some; "+
			"free now: %s)",
			n/hugePage, err, firstLine("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"))
	}
	return b, func() error { return unix.Munmap(b) }, nil
}

// machineCPUs returns the number of processors of the machine, including those that this process
// may not use. It returns 0 if the number is unknown.
func machineCPUs() int {
	cpus, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*")
	return len(cpus)
}

// CheckCPU returns an error if a loop cannot be pinned to the processor cpu.
func CheckCPU(cpu int) error {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return err
	}
	if cpu < 0 || cpu >= 8*len(may)*8 || !may.IsSet(cpu) {
		return fmt.Errorf("--cpu %d: this process may not use such a processor; it may use %d of them, see taskset -p $$",
			cpu, may.Count())
	}
	return nil
}

// pinTo binds the calling goroutine to the processors until unpin is called.
func pinTo(cpus []int) (unpin func(), err error) {
	runtime.LockOSThread()
	var before, only unix.CPUSet
	if err = unix.SchedGetaffinity(0, &before); err == nil {
		for _, cpu := range cpus {
			only.Set(cpu)
		}
		err = unix.SchedSetaffinity(0, &only)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("processors %v: %w", cpus, err)
	}
	return func() {
		if unix.SchedSetaffinity(0, &before) == nil { // otherwise the thread stays locked and ends with the goroutine
			runtime.UnlockOSThread()
		}
	}, nil
}

// nodeOfCPU returns the NUMA node of a processor, or "" if the node is unknown.
func nodeOfCPU(cpu int) string {
	nodes, _ := filepath.Glob("/sys/devices/system/cpu/cpu" + strconv.Itoa(cpu) + "/node[0-9]*")
	if len(nodes) == 0 {
		return ""
	}
	return strings.TrimPrefix(filepath.Base(nodes[0]), "node")
}
