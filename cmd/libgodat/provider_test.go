package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

// The provider as programs see it: unmodified libdat2 loads it. mem0 connects within one process,
// the loop device several.

const patience = 2 * time.Minute

// sanitizer is the library of AddressSanitizer, empty without GODAT_PROVIDER_ASAN=1. With it the C
// side of the provider is instrumented, and its heap and that of the programs guarded.
var sanitizer = sync.OnceValues(func() (string, error) {
	if os.Getenv("GODAT_PROVIDER_ASAN") == "" {
		return "", nil
	}
	out, err := exec.Command("cc", "-print-file-name=libasan.so").Output()
	return strings.TrimSpace(string(out)), err
})

// provider builds the library with the loop device and its dat.conf, once.
var provider = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "libgodat")
	if err != nil {
		return "", err
	}
	asan, err := sanitizer()
	if err != nil {
		return dir, err
	}
	library, program := filepath.Join(dir, "libgodat.so"), filepath.Join(dir, "libgodat")
	for _, args := range [][]string{
		{"go", "build", "-buildvcs=false", "-tags", "dat2,nulldev", "-buildmode=c-shared", "-o", library, "."},
		{"go", "build", "-buildvcs=false", "-tags", "nulldev", "-o", program, "."},
		{"cc", "-Wall", "-Werror", "-o", filepath.Join(dir, "check"), "testdata/check.c", "-ldat2", "-lpthread"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stderr = os.Stderr
		if asan != "" {
			cmd.Env = append(os.Environ(), "CGO_CFLAGS=-g -O1 -fsanitize=address", "CGO_LDFLAGS=-fsanitize=address")
		}
		if err := cmd.Run(); err != nil {
			return dir, err
		}
	}
	conf, err := exec.Command(program, library).Output()
	if err != nil {
		return dir, err
	}
	return dir, os.WriteFile(filepath.Join(dir, "dat.conf"), conf, 0o644)
})

func TestMain(m *testing.M) {
	status := leaktest.M{M: m}.Run()
	if built {
		dir, _ := provider()
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

var built bool

// directory returns the folder of the provider, and skips the test where it cannot be built.
func directory(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/dat2/udat.h"); err != nil {
		t.Skip("no headers of libdat2: ci/deps.sh provider installs them")
	}
	if _, err := exec.LookPath("dapltest"); err != nil {
		t.Skip("no dapltest: ci/deps.sh provider installs it")
	}
	built = true
	dir, err := provider()
	assert.NilError(t, err)
	return dir
}

// program makes a command that uses the provider.
func program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DAT_OVERRIDE="+filepath.Join(directory(t), "dat.conf"))
	asan, err := sanitizer()
	assert.NilError(t, err)
	if asan != "" { // the signals and their stacks are the Go runtime's; what only Go refers to looks like a leak
		cmd.Env = append(cmd.Env, "LD_PRELOAD="+asan, "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:use_sigaltstack=0")
	}
	return cmd
}

// run runs a program to its end and returns what it has written. dapltest reports many failures in
// its output alone.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	for _, failure := range []string{"failed in file", "Result: FAIL", "not supported", "DAT_INTERNAL_ERROR"} {
		if bytes.Contains(out, []byte(failure)) {
			t.Errorf("%v reports %q", cmd.Args, failure)
		}
	}
	if err != nil || t.Failed() {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func TestCheck(t *testing.T) {
	for _, device := range []string{"mem0", "loop0"} {
		t.Run(device, func(t *testing.T) {
			out := run(t, program(t, filepath.Join(directory(t), "check"), "godat-"+device))
			assert.Assert(t, strings.HasSuffix(out, "ok\n"), out)
		})
	}
}

// dapltest's feature tests of one process. Its queryinfo gives libdat2 an IA's handle as that of a
// CNO in case 13, which crashes libdat2 with any provider: it is not here.
func TestDapltestFeatures(t *testing.T) {
	for _, feature := range []string{"hwconn", "endpoint", "pz", "mem", "connmgt"} {
		t.Run(feature, func(t *testing.T) {
			out := run(t, program(t, "dapltest", "-T", "F", "-D", "godat-mem0", "-f", feature))
			assert.Assert(t, strings.Count(out, "Result: PASS") >= 2, out)
		})
	}
}

func TestDapltestLimits(t *testing.T) {
	for _, limit := range []string{"ia", "pz", "cno", "evd", "ep", "rsp", "psp", "lmr"} {
		t.Run(limit, func(t *testing.T) {
			out := run(t, program(t, "dapltest", "-T", "L", "-D", "godat-mem0", "-m", "40", "-w", "1", "limit_"+limit))
			assert.Assert(t, strings.Contains(out, "s created: 40") || strings.Contains(out, "s opened: 40"), out)
		})
	}
}

// Two processes of each program, connected over the loop device.
func TestPrograms(t *testing.T) {
	const ia, host = "godat-loop0", "127.0.0.1"
	transaction := strings.Fields("dapltest -T T -i 20 -t 2 -w 2 -V client SR 4096 2 server SR 1000 " +
		"client RW 4096 server RR 512")
	cases := []struct {
		name           string
		server, client []string
		quit           bool // the server runs until it is asked to end
	}{
		{"dtest", strings.Fields("dtest -b 4096 -B 10 -s"), strings.Fields("dtest -b 4096 -B 10 -h " + host), false},
		{"dtestcm", strings.Fields("dtestcm -s -c 20 -b 5"), strings.Fields("dtestcm -c 20 -b 5 -h " + host), false},
		{"transaction", strings.Fields("dapltest -T S"), append(transaction[:3:3],
			append([]string{"-s", host}, transaction[3:]...)...), true},
		{"performance", strings.Fields("dapltest -T S"), strings.Fields("dapltest -T P -s " + host + " -i 200 -p 8 RW 4096"),
			true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			device := "-P"
			if c.quit {
				device = "-D"
			}
			with := func(args []string) *exec.Cmd {
				at := 1
				if c.quit {
					at = 3 // after -T X
				}
				return program(t, args[0], append(append(append([]string{}, args[1:at]...), device, ia), args[at:]...)...)
			}
			server := with(c.server)
			var out bytes.Buffer
			server.Stdout, server.Stderr = &out, &out
			assert.NilError(t, server.Start())
			defer server.Wait()
			defer server.Process.Kill()
			var last string
			for start := time.Now(); ; time.Sleep(100 * time.Millisecond) { // the server needs time to listen
				client := with(c.client)
				text, err := client.CombinedOutput()
				if last = string(text); err == nil && !strings.Contains(last, "failed in file") {
					break
				}
				if time.Since(start) > patience/2 {
					t.Fatalf("%v: %v\n%s\nserver:\n%s", client.Args, err, last, out.String())
				}
			}
			if c.quit {
				run(t, with([]string{"dapltest", "-T", "Q", "-s", host}))
				assert.Assert(t, strings.Contains(last, "End of Work"), last)
			}
			assert.NilError(t, server.Wait(), out.String())
		})
	}
}
