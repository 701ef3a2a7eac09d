package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/udat"
)

// unitTests returns the function of a scenario that runs unit tests of packages. Each test is given
// as folder:Test, and its test binary is in the folder that the flag -tests names. The tests must
// pass on the device, and must not skip the device. If a test skips only some subtests, the row
// names these subtests.
func unitTests(tests []string) func(*round) error {
	return func(r *round) error {
		for _, test := range tests {
			pkg, name, _ := strings.Cut(test, ":")
			binary, err := filepath.Abs(filepath.Join(r.tests, filepath.Base(pkg)+".test"))
			if err != nil {
				return err
			}
			cmd := exec.Command(binary, "-test.run", "^"+name+"$", "-test.v", fmt.Sprintf("-test.short=%v", !r.long),
				"-test.timeout", "30m")
			cmd.Dir = pkg // some tests read source files
			cmd.Env = os.Environ()
			if r.device != "mem0" {
				cmd.Env = append(cmd.Env, "GODAT_TEST_DEVICE="+r.device)
			}
			out, err := cmd.CombinedOutput()
			text := string(out)
			passed, skipped := verdictOf(text, name, r.device)
			if err != nil || !passed {
				return fmt.Errorf("%s: %v: %s", test, err, text[max(0, len(text)-1000):])
			}
			for _, part := range skipped {
				if !slices.Contains(r.skipped, part) {
					r.skipped = append(r.skipped, part)
				}
			}
		}
		return r.goOn()
	}
}

// verdictOf reads the output of a test that is named name. A test has passed on the device if its
// subtest for the device has passed. A test without subtests for devices must have passed
// itself, and must not have skipped all of its subtests. The result skipped lists the skipped
// subtests, which test what the device lacks.
func verdictOf(out, name, device string) (passed bool, skipped []string) {
	parts := map[string][]string{}
	for _, m := range subtestVerdict.FindAllStringSubmatch(out, -1) {
		if m[2] == name {
			parts[m[1]] = append(parts[m[1]], strings.ReplaceAll(m[3], "_", " "))
		}
	}
	if slices.Contains(parts["PASS"], device) {
		return true, nil // the other subtests are of other devices
	}
	passed = strings.Contains(out, "--- PASS: "+name+" ") && !slices.Contains(parts["PASS"], "mem0")
	return passed && (len(parts["SKIP"]) == 0 || len(parts["PASS"]) > 0), parts["SKIP"]
}

var subtestVerdict = regexp.MustCompile(`(?m)^    --- (PASS|SKIP): (\w+)/(\S+) `)

// collected registers slices that are reachable only through their regions, while the garbage
// collector runs all the time. It makes the peer write and read them.
func collected(k *attack) error {
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for garbage := [][]byte(nil); ; garbage = append(garbage[max(0, len(garbage)-20):], make([]byte, regionSize)) {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	if err := k.connected(); err != nil {
		return err
	}
	for n := range 10 {
		var regions []*udat.LMR
		for range 16 {
			region, err := k.v.ia.CreateLMR(k.v.pz, make([]byte, regionSize), udat.PrivAll)
			if err != nil {
				return err
			}
			regions = append(regions, region)
		}
		runtime.GC()
		for i, region := range regions {
			set(k.a.mem.buf, byte(n*len(regions)+i))
			grant := region.RMRTriplet(0, regionSize)
			for _, read := range []bool{false, true} {
				if err := k.succeed(read, grant.RMRContext, grant.TargetAddress, regionSize); err != nil {
					return err
				}
				if !read {
					set(k.a.mem.buf, emptyByte)
				}
			}
			for what, b := range map[string][]byte{"read": k.a.mem.buf, "in the region": region.Bytes()} {
				if at := changed(b, byte(n*len(regions)+i)); at >= 0 {
					return fmt.Errorf("byte %d %s is not what was written", at, what)
				}
			}
		}
		for _, region := range regions {
			if err := region.Free(); err != nil {
				return err
			}
		}
	}
	set(k.a.mem.buf, emptyByte)
	return nil
}

// forked starts child processes while memory is registered and written. The children must get no
// descriptor of a device, and the peer's writes must still reach the memory of this process.
func forked(k *attack) error {
	if err := k.connected(); err != nil {
		return err
	}
	grant := k.granted.lmr.RMRTriplet(0, regionSize)
	for n := range 10 {
		child := exec.Command("sh", "-c", "ls -l /proc/self/fd; exec sleep 0.2")
		var out strings.Builder
		child.Stdout = &out
		if err := child.Start(); err != nil {
			return err
		}
		for i := range 20 {
			set(k.granted.buf, byte(n)) // a write after the fork must not move the memory to another page
			set(k.a.mem.buf, byte(100+i))
			if err := k.succeed(false, grant.RMRContext, grant.TargetAddress, regionSize); err != nil {
				return err
			}
			for until := time.Now().Add(patience); changed(k.granted.buf, byte(100+i)) >= 0; {
				if time.Now().After(until) || !k.r.iwarp { // on iWARP a write completes before it is placed
					return errors.New("the write went into other memory")
				}
			}
		}
		if err := child.Wait(); err != nil {
			return err
		}
		if strings.Contains(out.String(), "infiniband") {
			return fmt.Errorf("the child has descriptors of devices: %s", out.String())
		}
	}
	set(k.granted.buf, secretByte)
	set(k.a.mem.buf, emptyByte)
	return nil
}

func callersRow(name, promise string, tests ...string) scenario {
	return scenario{group: "callers", name: name, promise: promise, act: unitTests(tests), tests: true, ends: disconnected,
		within: soon, rounds: map[string][2]int{"mem": {1, 10}, "tcp": {1, 10}, "rxe": {1, 3}},
		why: map[string]string{"siw": "not shown"}}
}

func inGroup(group string, s scenario) scenario {
	s.group = group
	return s
}

var callersGroup = []scenario{
	callersRow("every exported method of udat on nil, zero and freed objects, and with such arguments",
		"InvalidHandle; no panic, no hang", "udat:TestDeadHandles", "udat:TestDeadArguments"),
	callersRow("every exported method of cverbs on nil and zero objects", "an error; no panic, no hang",
		"cverbs:TestClosedObjects").exceptOn("tcp: no verbs"),
	callersRow("sizes that no host has", "an error at once, which names the limit", "udat:TestAbsurdSizes"),
	callersRow("every exported method at once, from 32 goroutines (on mem0 with the race detector)",
		"no panic, no hang, no race; an abrupt close ends everything", "udat:TestEveryCallAtOnce", "udat:TestEndpointStress"),
	inGroup("callers", hostileRow("slices that only their regions keep, under constant garbage collection",
		"the memory stays where it is and keeps its bytes", collected)),
	inGroup("callers", hostileRow("children are started while memory is registered and written",
		"they have no descriptor of a device; the peer's writes arrive", forked)),
}
