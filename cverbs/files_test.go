//go:build linux

package cverbs

import (
	"cmp"
	"os"
	"reflect"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// With few descriptors left, whatever their number, either all devices are found and opened, or the
// error names the limit.
func TestOpenFileLimit(t *testing.T) {
	name := cmp.Or(os.Getenv("GODAT_TEST_DEVICE"), "nosuch0")
	all, err := Devices()
	assert.NilError(t, err)
	var before unix.Rlimit
	assert.NilError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	free, err := unix.Dup(0)
	assert.NilError(t, err)
	unix.Close(free)
	for left := range 24 {
		limit := unix.Rlimit{Cur: uint64(free + left), Max: before.Max}
		assert.NilError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
		found, err := Devices()
		if err == nil {
			assert.Assert(t, reflect.DeepEqual(found, all), "%d descriptors left: %+v instead of %+v", left, found, all)
		} else {
			isErr(t, err, syscall.EMFILE)
			assert.ErrorContains(t, err, "(RLIMIT_NOFILE) is ")
		}
		switch ctx, err := OpenDevice(name); {
		case err == nil:
			assert.NilError(t, ctx.Close())
		case left == 0 || name != "nosuch0":
			isErr(t, err, syscall.EMFILE)
			assert.ErrorContains(t, err, "(RLIMIT_NOFILE) is ")
		}
	}
	_, err = Devices()
	assert.NilError(t, err)
}
