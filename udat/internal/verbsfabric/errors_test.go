package verbsfabric

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// A name that is no device is ErrNoDevice on every host, with or without RDMA.
func TestOpenUnknown(t *testing.T) {
	for _, name := range []string{"", "nosuch0", "nosuch0/2", "mem0", "192.0.2.77", "2001:db8::77"} {
		_, err := New().Open(name, fabric.Options{}, nil)
		assert.Check(t, errors.Is(err, fabric.ErrNoDevice), "%q: %v", name, err)
	}
	_, err := New().Open("nosuch0", fabric.Options{RNRRetry: 8}, nil)
	assert.ErrorIs(t, err, fabric.ErrInvalid)
	if devs, err := New().Devices(); len(devs) == 0 && err == nil {
		t.Error("no devices, and no reason")
	}
}

// TestNoDevices: if the kernel has a device but its file is missing, as in a container, the error
// does not say that the hardware is missing.
func TestNoDevices(t *testing.T) {
	folder := t.TempDir()
	for _, none := range []string{folder, filepath.Join(folder, "nowhere")} {
		assert.ErrorIs(t, noDevices(none), fabric.ErrNoDevice)
		assert.ErrorContains(t, noDevices(none), "this host has no RDMA device")
	}
	assert.NilError(t, os.Mkdir(filepath.Join(folder, "mlx5_0"), 0o700))
	assert.ErrorIs(t, noDevices(folder), fs.ErrNotExist)
	assert.ErrorContains(t, noDevices(folder), "of mlx5_0 is missing: load the kernel module")
}
