package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// runFor runs a command and kills it after limit. Time during which the command's threads were
// ready but had no processor does not count: on a loaded machine, a slow test is not one that
// hangs.
func runFor(cmd *exec.Cmd, limit time.Duration) (inTime bool, err error) {
	if err := cmd.Start(); err != nil {
		return true, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	seen := threads(cmd.Process.Pid)
	var took, ran time.Duration
	for last := time.Now(); ; {
		select {
		case err := <-ended:
			return true, err
		case <-tick.C:
		}
		step := time.Since(last)
		last, took = last.Add(step), took+step
		now := threads(cmd.Process.Pid)
		for id, t := range now {
			ran += t.ran - seen[id].ran
			took -= min(took, t.waited-seen[id].waited)
		}
		seen = now
		if max(took, ran) > limit {
			cmd.Process.Kill()
			return false, <-ended
		}
	}
}

// thread says how long a thread has run, and how long it has waited for a processor.
type thread struct{ ran, waited time.Duration }

// threads returns the threads of a process, or none on a system without /proc.
func threads(pid int) map[string]thread {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	list := map[string]thread{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		var t thread
		if _, scanned := fmt.Sscan(string(text), &t.ran, &t.waited); err == nil && scanned == nil {
			list[file] = t
		}
	}
	return list
}
