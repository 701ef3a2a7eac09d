package udat_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// roleEnv makes a second process of this test program what its value says: a role and the device.
const roleEnv = "GODAT_TEST_ROLE"

// TestMain fails the package if the tests leave goroutines or descriptors behind, and prints them.
func TestMain(m *testing.M) {
	startPoller()
	descriptors := append(openDescriptors(), keptDescriptors()...)
	code := m.Run()
	if code == 0 && os.Getenv(roleEnv) == "" && flag.Lookup("test.fuzz").Value.String() == "" {
		var left []string
		for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			left = append(goroutines(), slices.DeleteFunc(more(openDescriptors(), descriptors), ofLoopDevice)...)
			if len(left) == 0 {
				break
			}
		}
		if len(left) > 0 {
			fmt.Printf("FAIL: left behind by the tests:\n%s\n", strings.Join(left, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// startPoller makes the runtime open the descriptors of its poller, which it keeps.
func startPoller() {
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
}

// goroutines gives the stacks of all goroutines but the caller's.
func goroutines() []string {
	buf := make([]byte, 16<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return all[1:]
}

// openDescriptors says what each open descriptor of the process is; nothing where there is no
// /proc.
func openDescriptors() []string {
	var list []string
	links, _ := filepath.Glob("/proc/self/fd/*")
	for _, l := range links {
		if name, err := os.Readlink(l); err == nil {
			list = append(list, "descriptor of "+name)
		}
	}
	return list
}

// keptDescriptors are those that the libraries below open once and keep: librdmacm's context of
// each device, with its channel of events, and the eventfds that end what blocks a thread.
func keptDescriptors() []string {
	list, _ := filepath.Glob("/dev/infiniband/uverbs*")
	for range list {
		list = append(list, "anon_inode:[infinibandevent]")
	}
	for range runtime.GOMAXPROCS(0) / 2 {
		list = append(list, "anon_inode:[eventfd]")
	}
	for i := range list {
		list[i] = "descriptor of " + list[i]
	}
	return list
}

// ofLoopDevice says whether a descriptor may be one that the loop device keeps until the process
// ends: its memory, and of each process that it has met a pidfd and the eventfds of completion
// channels.
func ofLoopDevice(descriptor string) bool {
	return strings.Contains(os.Getenv(deviceEnv), "loop0") && (strings.Contains(descriptor, "/memfd:loop device") ||
		strings.Contains(descriptor, "[pidfd]") || strings.Contains(descriptor, "[eventfd]"))
}

// more gives what now has beyond before.
func more(now, before []string) []string {
	before = slices.Clone(before)
	return slices.DeleteFunc(now, func(s string) bool {
		i := slices.Index(before, s)
		if i >= 0 {
			before = slices.Delete(before, i, i+1)
		}
		return i >= 0
	})
}
