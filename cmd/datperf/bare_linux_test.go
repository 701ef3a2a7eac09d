package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// bareHost returns a root directory that contains only the programs and the libraries that they are
// linked with, like a host without rdma-core.
func bareHost(t *testing.T, programs map[string]string) string {
	root := t.TempDir()
	for name, from := range programs {
		place(t, from, filepath.Join(root, name))
		f, err := elf.Open(from)
		assert.NilError(t, err)
		linked, err := f.ImportedLibraries()
		assert.NilError(t, err)
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				loader, err := io.ReadAll(p.Open())
				assert.NilError(t, err)
				file := string(bytes.Trim(loader, "\x00"))
				place(t, file, filepath.Join(root, file))
			}
		}
		f.Close()
		for _, library := range linked {
			assert.Assert(t, !strings.Contains(library, "ibverbs") && !strings.Contains(library, "rdmacm"), library)
			file := mapped(t, library)
			place(t, file, filepath.Join(root, filepath.Dir(file), library))
		}
	}
	assert.NilError(t, os.Mkdir(filepath.Join(root, "tmp"), 0o777))
	return root
}

func place(t *testing.T, from, to string) {
	data, err := os.ReadFile(from)
	assert.NilError(t, err)
	assert.NilError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	assert.NilError(t, os.WriteFile(to, data, 0o755))
}

// mapped returns the file of a library with which this test program is linked too.
func mapped(t *testing.T, library string) string {
	maps, err := os.ReadFile("/proc/self/maps")
	assert.NilError(t, err)
	name, _, _ := strings.Cut(library, ".so")
	file := regexp.MustCompile(`/\S*/` + regexp.QuoteMeta(name) + `[-.]\S*`).FindString(string(maps))
	assert.Assert(t, file != "", "%s is not among the libraries of this program", library)
	return file
}

// bare returns a command that runs inside root, without LD_PRELOAD, whose library root lacks.
func bare(root, program string, args ...string) *exec.Cmd {
	c := exec.Command("/"+program, args...)
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LD_PRELOAD=") })
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if id := os.Geteuid(); id != 0 {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
	}
	return c
}

// TestWithoutLibraries: on a host without libibverbs and librdmacm, programs start, and mem0 and
// tcp work. A command that needs a verbs device names the packages that are missing.
func TestWithoutLibraries(t *testing.T) {
	self, err := os.Executable()
	assert.NilError(t, err)
	programs := map[string]string{"datperf": self} // see TestMain
	// Compiling takes minutes in the virtual machine.
	compiles := !testing.Short() || os.Getenv("GODAT_TEST_DEVICE") == ""
	if _, err := exec.LookPath("go"); err == nil && compiles {
		hello := filepath.Join(t.TempDir(), "hello")
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", hello, "../../examples/hello").CombinedOutput()
		assert.NilError(t, err, "%s", out)
		programs["hello"] = hello
	}
	root := bareHost(t, programs)
	if err := bare(root, "datperf", "help").Run(); errors.Is(err, os.ErrPermission) {
		t.Skipf("this user may not change the root: %v", err)
	}

	const packages = "apt install libibverbs1 ibverbs-providers librdmacm1"
	for _, c := range []struct {
		args []string
		want string
		fail bool
	}{
		{args: []string{"datperf", "local", "-n", "50", "--device", "mem0"}, want: "mem0 on the mem fabric"},
		{args: []string{"datperf", "local", "-n", "50", "--device", "tcp:127.0.0.1"}, want: "on the tcp fabric"},
		{args: []string{"datperf", "local", "-n", "50", "--device", "rxe0"}, want: packages, fail: true},
		{args: []string{"datperf", "doctor"}, want: "libibverbs.so.1: cannot open shared object file", fail: true},
		{args: []string{"datperf", "doctor", "--device", "tcp"}, want: "\nready"},
		{args: []string{"hello"}, want: "hello"},
	} {
		if programs[c.args[0]] == "" {
			continue
		}
		out, err := bare(root, c.args[0], c.args[1:]...).CombinedOutput()
		assert.Equal(t, err != nil, c.fail, "%v: %v\n%s", c.args, err, out)
		assert.Assert(t, strings.Contains(string(out), c.want), "%v: %v\n%s", c.args, err, out)
	}
}
