//go:build linux && cgo

package cverbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// Libraries returns both libraries, with files that exist.
func TestLibraries(t *testing.T) {
	all, err := Libraries()
	assert.NilError(t, err)
	var names []string
	for _, l := range all {
		names = append(names, l.Name)
		assert.Assert(t, strings.HasPrefix(filepath.Base(l.File), l.Name+".so.1"), "%+v", l)
		_, err := os.Stat(l.File)
		assert.NilError(t, err)
		assert.Assert(t, l.Version == "" || strings.HasSuffix(l.File, "."+l.Version), "%+v", l)
	}
	assert.DeepEqual(t, names, []string{"libibverbs", "librdmacm"})
}

// If a library lacks a function, the call fails, and the program does not crash. This process has
// already loaded its libraries, so the test starts itself again with libraries that have no
// functions.
func TestOldLibraries(t *testing.T) {
	const again = "GODAT_OLD_LIBRARIES"
	if os.Getenv(again) != "" {
		_, err := Devices()
		assert.ErrorIs(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "ibv_get_device_list")
		_, err = CreateEventChannel()
		assert.ErrorIs(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "rdma_create_event_channel")
		return
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler here")
	}
	dir := t.TempDir()
	for _, name := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		cc := exec.Command("cc", "-shared", "-Wl,-soname,"+name, "-o", filepath.Join(dir, name), "-x", "c", "-")
		cc.Stdin = strings.NewReader("int none;")
		out, err := cc.CombinedOutput()
		assert.NilError(t, err, "%s", out)
	}
	runWithLibraries(t, dir, again)
}

// If a library cannot be opened, the error names the library, the reason, and the packages to
// install.
func TestUnreadableLibrary(t *testing.T) {
	const again = "GODAT_UNREADABLE_LIBRARY"
	if os.Getenv(again) != "" {
		_, err := Devices()
		assert.ErrorIs(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "libibverbs.so.1: invalid ELF header")
		assert.ErrorContains(t, err, "apt install libibverbs1")
		return
	}
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "libibverbs.so.1"), make([]byte, 4096), 0o644))
	runWithLibraries(t, dir, again)
}

// runWithLibraries runs this test again, in a process that finds libraries in dir first.
func runWithLibraries(t *testing.T, dir, again string) {
	t.Helper()
	self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	self.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LD_PRELOAD=") })
	self.Env = append(self.Env, again+"=1", "LD_LIBRARY_PATH="+dir)
	out, err := self.CombinedOutput()
	assert.NilError(t, err, "%s", out)
}
