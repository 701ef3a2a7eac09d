// Package looptest lets tests write scripts for the loop device: lab/loopdev/script.c makes calls
// of the libraries fail, and changes the order of connection events, as a script says.
package looptest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const variable = "GODAT_LOOP_SCRIPT"

// Script is the script of this process.
type Script struct {
	t    testing.TB
	file string
}

// Run runs the calling test again, in a process that obeys a script, and passes the script to f
// there. It skips the test unless the loop device is loaded.
func Run(t *testing.T, f func(s *Script)) {
	t.Helper()
	if file := os.Getenv(variable); file != "" {
		f(&Script{t, file})
		return
	}
	if text, err := again(t, t.Name(), filepath.Join(t.TempDir(), "script")); err != nil ||
		!strings.Contains(text, "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, text)
	}
}

// again runs a test in a process that obeys the script in a file, and returns what the process
// writes.
func again(t *testing.T, test, file string) (string, error) {
	t.Helper()
	device := os.Getenv("LD_PRELOAD")
	if filepath.Base(device) != "libloop.so" {
		t.Skip("the loop device is not loaded: lab/loopdev/loop.sh loads it")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v", "-test.short")
	cmd.Env = append(os.Environ(), variable+"="+file,
		"LD_PRELOAD="+filepath.Join(filepath.Dir(device), "libscript.so")+" "+device)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Noticed fails unless another test fails when a function of the libraries returns success and does
// nothing.
func Noticed(t *testing.T, call, test string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("skip "+call), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := again(t, test, file)
	if err == nil || !strings.Contains(text, "--- FAIL: "+test) && !strings.Contains(text, "SIGABRT") {
		t.Errorf("%s does nothing, and %s does not fail: %v\n%s", call, test, err, text)
	}
}

// Set replaces the script. The counts of calls begin again.
func (s *Script) Set(lines ...string) {
	s.t.Helper()
	if err := os.WriteFile(s.file+".new", []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.file+".new", s.file); err != nil { // the library never reads half a script
		s.t.Fatal(err)
	}
}

// Each means each call, in place of a number.
const Each = 0

// Limit returns the line that lowers an attribute of ibv_query_device.
func Limit(attribute string, n int) string { return fmt.Sprintf("limit %s %d", attribute, n) }

// Fail returns the line that lets the nth call of a function fail, or each call.
func Fail(call string, nth int, errno syscall.Errno) string {
	return fmt.Sprintf("fail %s %d %d", call, nth, int(errno))
}

// Calls returns how often each function is called while f runs. It replaces the script.
func (s *Script) Calls(f func()) map[string]int {
	s.t.Helper()
	s.Set("trace")
	defer s.Set()
	defer os.Remove(s.file + ".trace")
	f()
	text, err := os.ReadFile(s.file + ".trace")
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]int{}
	for _, name := range strings.Fields(string(text)) {
		all[name]++
	}
	return all
}
