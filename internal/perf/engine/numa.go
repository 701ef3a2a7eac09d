package engine

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// sysfs is the folder in which the kernel describes devices and processors.
const sysfs = "/sys"

// maxProcessor is the largest number of a processor. Linux supports at most 8192 processors.
const maxProcessor = 8191

// nearProcessors returns the NUMA node of a verbs device and the node's processors. It returns no
// processors if the host has only one node, or if the kernel does not know the device's node.
func nearProcessors(root, device string) (node string, cpus []int) {
	at := filepath.Join(root, "class/infiniband", device, "device")
	node = firstLine(filepath.Join(at, "numa_node"))
	if n, err := strconv.Atoi(node); err != nil || n < 0 {
		return "", nil
	}
	if nodes, _ := filepath.Glob(filepath.Join(root, "devices/system/node/node[0-9]*")); len(nodes) < 2 {
		return node, nil
	}
	cpus, err := parseProcessors(firstLine(filepath.Join(at, "local_cpulist")))
	if err != nil {
		return node, nil
	}
	return node, cpus
}

// parseProcessors parses a list of processors in the kernel's form: 0-3,8,10-11.
func parseProcessors(list string) (cpus []int, err error) {
	if list == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || from < 0 || to < from || to > maxProcessor {
			return nil, fmt.Errorf("processors %q: must be numbers from 0 to %d and ranges of them", list, maxProcessor)
		}
		for n := from; n <= to; n++ {
			cpus = append(cpus, n)
		}
	}
	return cpus, nil
}

// useNode makes the measuring loops run on those processors of the device's NUMA node that this
// process may use. A loop that --cpu pins to a processor stays on that processor.
func (c *choice) useNode(root string) {
	if c.Fabric != fabricVerbs {
		return
	}
	device, _ := c.verbsPort()
	_, near := nearProcessors(root, device)
	for _, cpu := range near {
		if CheckCPU(cpu) == nil {
			c.near = append(c.near, cpu)
		}
	}
	c.far = len(near) > 0 && len(c.near) == 0
}
