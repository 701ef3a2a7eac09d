package main

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/godat/godat/lab/suites/wire"
)

// outcome is the result of a test, in the words of go test -json.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
	stalled outcome = "hang"  // the test did not end and was killed
	crashed outcome = "crash" // the process ended while the test ran
)

func (o outcome) bad() bool { return o != passed && o != skipped }

// results contains the outcome of each test and subtest.
type results map[string]outcome

// count returns how many tests ran, and how many of them passed. It counts subtests, but not the
// tests that contain them.
func (r results) count() (ran, good int) {
	parents := map[string]bool{}
	for name := range r {
		for i, c := range name {
			if c == '/' {
				parents[name[:i]] = true
			}
		}
	}
	for name, o := range r {
		if parents[name] || o == skipped {
			continue
		}
		ran++
		if o == passed {
			good++
		}
	}
	return ran, good
}

// event is one line of the output of go test -json.
type event struct {
	Action, Test, Output string
}

var stall = time.Minute // if no test begins or ends for so long, the running tests hang

const (
	turns       = 10              // how often a package is started again, without the tests that crashed or hung
	packageTime = 4 * time.Minute // after this time a package is not started again
)

// runTests runs the tests of a package on a device, or over TCP if device is "". If only is not
// empty, it runs only that test. The tests' output goes to log. A test that crashes or hangs ends
// the process, and the other tests run in a new process. If several tests ran in parallel at that
// time, the new process runs its tests one at a time, to find out which test ended the process.
func runTests(p pack, bin, device, only string, log io.Writer) (results, error) {
	all := results{}
	alone := false
	end := time.Now().Add(packageTime)
	for range turns {
		got, dead, err := runOnce(p, bin, device, only, all, alone, log)
		maps.Copy(all, got)
		if err != nil || len(dead) == 0 || time.Now().After(end) {
			maps.Copy(all, dead)
			return all, err
		}
		if len(dead) == 1 || alone {
			maps.Copy(all, dead)
		}
		alone = true
	}
	return all, nil
}

// runOnce runs the tests in one process, except those in done. If alone is set, it runs one test at
// a time. The result dead contains the tests that were running when the process died.
func runOnce(p pack, bin, device, only string, done results, alone bool, log io.Writer) (got, dead results,
	err error) {
	args := []string{"-test.v=test2json", "-test.timeout=10m", "-test.paniconexit0"}
	if alone {
		args = append(args, "-test.parallel=1")
	}
	switch {
	case only != "":
		args = append(args, "-test.run="+exactly(only))
	case p.run != "":
		args = append(args, "-test.run="+p.run)
	}
	var skip []string
	if p.skip != "" {
		skip = append(skip, p.skip)
	}
	for name := range done {
		skip = append(skip, exactly(name))
	}
	if len(skip) > 0 {
		args = append(args, "-test.skip="+strings.Join(skip, "|"))
	}
	cmd, err := onDevice(device, bin, args)
	if err != nil {
		return nil, nil, err
	}
	cmd.Dir, cmd.Stderr = p.dir, log
	cmd.Env = append(os.Environ(), wire.Env+"="+device, wire.CountEnv+"="+countOf(bin))
	if p.pipe {
		cmd.Env = append(cmd.Env, wire.PipeEnv+"=1")
	}
	parser := exec.Command("go", "tool", "test2json", "-t")
	if parser.Stdin, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, err
	}
	events, err := parser.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	if err := parser.Start(); err != nil {
		return nil, nil, err
	}
	var hung atomic.Bool
	watch := time.AfterFunc(stall, func() {
		hung.Store(true)
		cmd.Process.Signal(syscall.SIGQUIT) // prints the stacks
		time.Sleep(10 * time.Second)
		cmd.Process.Kill()
	})
	got = results{}
	running, paused := map[string]bool{}, map[string]bool{}
	for lines := bufio.NewScanner(events); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, nil, err
		}
		if e.Action != "output" {
			watch.Reset(stall)
		}
		switch e.Action {
		case "output":
			io.WriteString(log, e.Output)
		case "run", "cont":
			running[e.Test] = true
			delete(paused, e.Test)
		case "pause": // the test waits for its turn to run in parallel
			delete(running, e.Test)
			paused[e.Test] = true
		case "pass", "fail", "skip":
			delete(running, e.Test)
			got[e.Test] = outcome(e.Action)
		}
	}
	watch.Stop()
	cmd.Wait()
	if err := parser.Wait(); err != nil {
		return nil, nil, err
	}
	delete(got, "") // the result of the whole package
	dead = results{}
	for name := range running {
		if !hasSubtest(running, name) && !hasSubtest(paused, name) {
			dead[name] = crashed
			if hung.Load() {
				dead[name] = stalled
			}
		}
	}
	return got, dead, nil
}

// guest is the name of the script in ci that runs all tests in a virtual machine. If it is empty,
// they run on this host.
var guest string

// onDevice returns the command that runs a binary on a device.
func onDevice(device, bin string, args []string) (*exec.Cmd, error) {
	line := append([]string{bin}, args...)
	switch {
	case guest != "":
		script, err := filepath.Abs("../../ci/" + guest + ".sh")
		return exec.Command(script, append([]string{"--out", filepath.Dir(countOf(bin)), "--"}, line...)...), err
	case device == "loop0":
		script, err := filepath.Abs("../loopdev/loop.sh")
		return exec.Command(script, line...), err
	}
	return exec.Command(bin, args...), nil
}

// countOf returns the path of the file for wire.CountEnv. It is in a folder to which the guest can
// write.
func countOf(bin string) string {
	return filepath.Join(filepath.Dir(bin), "..", "counts", filepath.Base(bin))
}

func hasSubtest(tests map[string]bool, name string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(tests)), func(other string) bool {
		return strings.HasPrefix(other, name+"/")
	})
}

// exactly returns a pattern for -test.run that matches only one test.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i, s := range parts {
		parts[i] = "^" + regexp.QuoteMeta(s) + "$"
	}
	return strings.Join(parts, "/")
}
