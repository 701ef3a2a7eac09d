//go:build linux && cgo

package cverbs

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// No C file includes a header of rdma-core, so a build does not need them.
func TestWithoutHeaders(t *testing.T) {
	needCompiler(t)
	sources, err := filepath.Glob("*.c")
	assert.NilError(t, err)
	assert.Assert(t, len(sources) > 5)
	for _, source := range sources {
		assert.Check(t, !regexp.MustCompile(`/(infiniband|rdma)/`).MatchString(output(t, "cc", "-M", source)), source)
	}
}

// If a library lacks a function, the call fails, and the program does not crash. This process has
// already loaded its libraries, so the test starts itself again with libraries that have no
// functions.
func TestEmptyLibraries(t *testing.T) {
	const again = "GODAT_EMPTY_LIBRARIES"
	if os.Getenv(again) != "" {
		_, err := Devices()
		assert.ErrorIs(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "ibv_get_device_list")
		_, err = CreateEventChannel()
		assert.ErrorIs(t, err, ErrNotSupported)
		assert.ErrorContains(t, err, "rdma_create_event_channel")
		return
	}
	runWithLibraries(t, fakeLibraries(t, "int none;"), again)
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

// oldLibraries has, for versions of rdma-core, the newest versions of symbols of both libraries.
var oldLibraries = map[string]map[string]int{
	"23": {"IBVERBS": 5, "RDMACM": 2}, "24": {"IBVERBS": 6, "RDMACM": 2}, "25": {"IBVERBS": 7, "RDMACM": 2},
	"28": {"IBVERBS": 8, "RDMACM": 2}, "30": {"IBVERBS": 9, "RDMACM": 2}, "31": {"IBVERBS": 10, "RDMACM": 3},
	"32": {"IBVERBS": 11, "RDMACM": 3}, "34": {"IBVERBS": 12, "RDMACM": 3}, "35": {"IBVERBS": 13, "RDMACM": 3},
}

// The package works with older libraries, from rdma-core 23 on: devices, GIDs, memory, queue pairs
// and connections. For each version these tests run again in a copy of this program that cannot
// find newer functions.
func TestOldLibraries(t *testing.T) {
	const again = "GODAT_OLD_LIBRARIES"
	if testing.Short() && os.Getenv("GODAT_VM") != "" {
		t.Skip("takes minutes in the virtual machine")
	}
	table, err := openDevice(t).GIDTable()
	assert.NilError(t, err)
	gids := ""
	for _, e := range table {
		if e.GID.Addr().IsLinkLocalUnicast() { // on the loop device of the process
			continue
		}
		gids += fmt.Sprint(e.Port, " ", e.Index, " ", e.GID, "\n")
	}
	if old := os.Getenv(again); old != "" {
		assert.Equal(t, gids, old)
		return
	}
	for version, newest := range oldLibraries {
		cmd := exec.Command(hideSymbols(t, newest), "-test.v", "-test.run=^(TestOldLibraries|TestDevice|TestRegMR|TestSend|"+
			"TestCMExternalQP)$")
		cmd.Env = append(os.Environ(), again+"="+gids)
		out, err := cmd.CombinedOutput()
		assert.Check(t, err == nil && bytes.Count(out, []byte("\n--- PASS")) == 5, "rdma-core %s: %v\n%s", version, err, out)
	}
}

// hideSymbols returns a copy of this program that looks for functions with newer versions under
// names that no library has.
func hideSymbols(t *testing.T, newest map[string]int) string {
	t.Helper()
	table, err := os.ReadFile("libcalls.h")
	assert.NilError(t, err)
	program, err := os.ReadFile(os.Args[0])
	assert.NilError(t, err)
	for _, m := range regexp.MustCompile(`, (\w+), (IBVERBS|RDMACM)_1\.(\d+),`).FindAllStringSubmatch(string(table), -1) {
		name := m[1]
		if minor, err := strconv.Atoi(m[3]); err != nil || minor <= newest[m[2]] {
			continue
		}
		word := []byte("\x00" + name + "\x00")
		at := bytes.Index(program, word)
		assert.Assert(t, at >= 0, "the program does not look for %s", name)
		for ; at >= 0; at = bytes.Index(program, word) {
			program[at+len(name)] = '~'
		}
	}
	file := filepath.Join(t.TempDir(), "old")
	assert.NilError(t, os.WriteFile(file, program, 0o755))
	return file
}

// The functions of this package have names of their own: another cgo package of the program, and
// another copy of this package in a shared library, call the libraries undisturbed.
func TestClash(t *testing.T) {
	needCompiler(t)
	if err := exec.Command("cc", "-fsyntax-only", "-include", "rdma/rdma_cma.h", "-xc", "/dev/null").Run(); err != nil {
		t.Skip("no headers of rdma-core here")
	}
	dir := t.TempDir()
	program, library := filepath.Join(dir, "clash"), filepath.Join(dir, "libclash.so")
	build(t, program)
	orders := []string{"own cverbs", "cverbs own"}
	if !testing.Short() { // the build takes long
		build(t, library, "-buildmode=c-shared")
		orders = append(orders, library+" own cverbs", "cverbs "+library+" own")
	}
	for _, order := range orders {
		out := strings.Fields(output(t, program, strings.Fields(order)...))
		assert.Check(t, len(out) > 1 && out[0] >= "0" && len(slices.Compact(out)) == 1, "%s: %q", order, out)
	}
	f, err := elf.Open(program)
	assert.NilError(t, err)
	defer f.Close()
	symbols, err := f.Symbols()
	assert.NilError(t, err)
	for _, s := range symbols {
		if elf.ST_BIND(s.Info) != elf.STB_LOCAL && s.Section != elf.SHN_UNDEF {
			assert.Check(t, !regexp.MustCompile(`^_?(ibv|rdma)_`).MatchString(s.Name), "the program defines %s", s.Name)
		}
	}
}

// In a program that is linked statically with glibc, errors have the errno of the libraries.
func TestStaticProgram(t *testing.T) {
	needCompiler(t)
	program := filepath.Join(t.TempDir(), "list")
	cmd := exec.Command("go", "build", "-o", program, "-ldflags=-linkmode=external -extldflags=-static", "./testdata/list")
	cmd.Env = ownEnvironment()
	if out, err := cmd.CombinedOutput(); err != nil && strings.Contains(string(out), "cannot find -l") {
		t.Skip("no static C library here")
	} else {
		assert.NilError(t, err, "%s", out)
	}
	dir := fakeLibraries(t, "#include <errno.h>\nvoid *ibv_get_device_list(int *n) { errno = EXFULL; return 0; }")
	cmd = exec.Command(program)
	cmd.Env = append(ownEnvironment(), "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
	assert.Assert(t, strings.Contains(string(out), "exchange full"), "%s", out)
}

// needCompiler skips a test that builds a program, if there is no compiler. Such tests need no
// device, so a short run on a device leaves them out.
func needCompiler(t *testing.T) {
	t.Helper()
	if testing.Short() && os.Getenv("GODAT_TEST_DEVICE") != "" {
		t.Skip("needs no device")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler here")
	}
}

// ownEnvironment returns the environment without preloaded libraries.
func ownEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LD_PRELOAD=") })
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	assert.NilError(t, err, "%s", out)
	return string(out)
}

func build(t *testing.T, file string, flags ...string) {
	t.Helper()
	cmd := exec.Command("go", slices.Concat([]string{"build", "-o", file}, flags, []string{"./testdata/clash"})...)
	cmd.Env = ownEnvironment()
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%s", out)
}

// fakeLibraries returns a folder with a libibverbs and a librdmacm, both made of the same source.
func fakeLibraries(t *testing.T, source string) string {
	t.Helper()
	needCompiler(t)
	dir := t.TempDir()
	versions := filepath.Join(dir, "versions")
	assert.NilError(t, os.WriteFile(versions, []byte("IBVERBS_1.1 { global: *; };"), 0o644))
	for _, name := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		cc := exec.Command("cc", "-shared", "-fPIC", "-Wl,-soname,"+name, "-Wl,--version-script="+versions, "-o",
			filepath.Join(dir, name), "-x", "c", "-")
		cc.Stdin = strings.NewReader(source)
		out, err := cc.CombinedOutput()
		assert.NilError(t, err, "%s", out)
	}
	return dir
}

// runWithLibraries runs this test again, in a process that finds libraries in dir first.
func runWithLibraries(t *testing.T, dir, again string) {
	t.Helper()
	self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	self.Env = append(ownEnvironment(), again+"=1", "LD_LIBRARY_PATH="+dir)
	out, err := self.CombinedOutput()
	assert.NilError(t, err, "%s", out)
}
