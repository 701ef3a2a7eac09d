package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gotest.tools/v3/assert"
)

// tree returns a sysfs with the given number of NUMA nodes. The device mlx5_1 is on one of them.
func tree(t *testing.T, nodes int, node, list string) string {
	t.Helper()
	root := t.TempDir()
	for n := range nodes {
		assert.NilError(t, os.MkdirAll(filepath.Join(root, "devices/system/node", "node"+string(rune('0'+n))), 0o755))
	}
	at := filepath.Join(root, "class/infiniband/mlx5_1/device")
	assert.NilError(t, os.MkdirAll(at, 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(at, "numa_node"), []byte(node+"\n"), 0o644))
	assert.NilError(t, os.WriteFile(filepath.Join(at, "local_cpulist"), []byte(list+"\n"), 0o644))
	return root
}

// nearProcessors returns the device's node and processors as sysfs has them. It returns no
// processors for a host with one node, for a device without a node, and for an invalid list.
func TestNearProcessors(t *testing.T) {
	for _, c := range []struct {
		nodes      int
		node, list string
		want       string
		cpus       []int
	}{
		{2, "1", "4-6,9", "1", []int{4, 5, 6, 9}}, {2, "0", "0", "0", []int{0}}, {1, "0", "0-3", "0", nil},
		{2, "-1", "0-3", "", nil}, {2, "x", "0-3", "", nil}, {2, "", "0-3", "", nil}, {2, "1", "3-1", "1", nil},
		{2, "1", "0-8192", "1", nil}, {2, "1", "0,-1", "1", nil}, {2, "1", "0-99999999999999999999", "1", nil},
		{2, "1", "", "1", nil},
	} {
		node, cpus := nearProcessors(tree(t, c.nodes, c.node, c.list), "mlx5_1")
		assert.Equal(t, node, c.want, "%+v", c)
		assert.DeepEqual(t, cpus, c.cpus)
	}
	node, cpus := nearProcessors(t.TempDir(), "mlx5_1")
	assert.Assert(t, node == "" && cpus == nil)
}

// Loops run on those processors of the node that this process may use. If it may use none of them,
// choice.far is set.
func TestUseNode(t *testing.T) {
	mine := -1
	for cpu := range maxProcessor {
		if CheckCPU(cpu) == nil {
			mine = cpu
			break
		}
	}
	if mine < 0 {
		t.Skip("processors cannot be chosen here")
	}
	c := choice{}
	c.Name, c.Fabric = "mlx5_1", fabricVerbs
	c.useNode(tree(t, 2, "1", "0-8191"))
	assert.Assert(t, slices.Contains(c.near, mine) && !slices.Contains(c.near, maxProcessor) && !c.far)
	c.near = nil
	c.useNode(tree(t, 2, "1", "8000-8191"))
	assert.Assert(t, c.near == nil && c.far)
	c = choice{}
	c.useNode(tree(t, 2, "1", "0-8191")) // mem0 is nowhere
	assert.Assert(t, c.near == nil && !c.far)
}

// A bound loop runs only on the given processors. Afterwards it may run where it could run before.
func TestPinTo(t *testing.T) {
	if CheckCPU(0) != nil {
		t.Skip("processor 0 is not to be had")
	}
	unpin, err := pinTo([]int{0})
	assert.NilError(t, err)
	assert.Assert(t, CheckCPU(0) == nil && CheckCPU(1) != nil)
	unpin()
	_, err = pinTo([]int{maxProcessor})
	assert.ErrorContains(t, err, "8191")
}
