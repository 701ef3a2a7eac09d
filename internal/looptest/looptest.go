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
	device := os.Getenv("LD_PRELOAD")
	if filepath.Base(device) != "libloop.so" {
		t.Skip("the loop device is not loaded: lab/loopdev/loop.sh loads it")
	}
	again := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	again.Env = append(os.Environ(), variable+"="+filepath.Join(t.TempDir(), "script"),
		"LD_PRELOAD="+filepath.Join(filepath.Dir(device), "libscript.so")+" "+device)
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
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

// Fail returns the line that lets the nth call of a function fail.
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
