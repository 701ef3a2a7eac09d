package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

// The provider as programs see it: unmodified libdat2 loads it. mem0 connects within one process,
// the loop device and tcp several.

const patience = 2 * time.Minute

// sanitized means that AddressSanitizer instruments the C side of the provider and the loop device,
// and guards their heap and that of the programs.
var sanitized = os.Getenv("GODAT_PROVIDER_ASAN") != ""

// preload builds the loop device, once, and returns what programs load before their libraries.
var preload = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("../../lab/loopdev/loop.sh")
	if sanitized {
		cmd.Args = append(cmd.Args, "--asan")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return "LD_PRELOAD=" + strings.TrimSpace(string(out)), err
})

// provider builds the library and its dat.conf, once.
var provider = sync.OnceValues(func() (dir string, err error) {
	dir, err = os.MkdirTemp("", "libgodat")
	if err != nil {
		return "", err
	}
	devices, err := preload()
	if err != nil {
		return dir, err
	}
	library, program := filepath.Join(dir, "libgodat.so"), filepath.Join(dir, "libgodat")
	for _, args := range [][]string{
		{"go", "build", "-buildvcs=false", "-tags", "dat2", "-buildmode=c-shared",
			"-ldflags=-X=runtime.godebugDefault=asyncpreemptoff=1", "-o", library, "."},
		{"go", "build", "-buildvcs=false", "-o", program, "."},
		host(dir, "check"), host(dir, "wrong"), host(dir, "host"), host(dir, "peer"),
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stderr = os.Stderr
		if sanitized {
			cmd.Env = append(os.Environ(), "CGO_CFLAGS=-g -O1 -fsanitize=address", "CGO_LDFLAGS=-fsanitize=address")
		}
		if err := cmd.Run(); err != nil {
			return dir, err
		}
	}
	conf := exec.Command(program, library)
	conf.Env = append(os.Environ(), devices)
	lines, err := conf.Output()
	if err != nil {
		return dir, err
	}
	text := string(lines)
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "godat-mem0 ") { // strict, and the adapter of a second copy of the library
			text += strings.Replace(strings.Replace(line, "godat-mem0", "strict", 1), `"mem0"`, `"mem0 strict"`, 1) + "\n"
			device := `"nodevice"`
			if strings.Contains(line, " nonthreadsafe ") { // each value of thread safety has a line with parameters of its own
				device = `"mem0"`
			}
			text += strings.NewReplacer("godat-mem0", "split", `"mem0"`, device).Replace(line) + "\n"
			text += strings.NewReplacer("godat-mem0", "second", library, library+".2").Replace(line) + "\n"
		}
	}
	if err := exec.Command("cp", library, library+".2").Run(); err != nil {
		return dir, err
	}
	return dir, os.WriteFile(filepath.Join(dir, "dat.conf"), []byte(text), 0o644)
})

// host is the command that compiles a C program of testdata.
func host(dir, name string) []string {
	return []string{"cc", "-Wall", "-Werror", "-o", filepath.Join(dir, name), "testdata/" + name + ".c", "-ldat2",
		"-lpthread", "-ldl"}
}

func TestMain(m *testing.M) {
	status := leaktest.M{M: m}.Run()
	if built {
		dir, _ := provider()
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

var built bool

// directory returns the folder of the provider, and skips the test if the provider cannot be built.
func directory(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/usr/include/dat2/udat.h"); err != nil {
		t.Skip("no headers of libdat2: ci/deps.sh provider installs them")
	}
	built = true
	dir, err := provider()
	assert.NilError(t, err)
	return dir
}

// program makes a command that uses the provider.
func program(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("no %s: ci/deps.sh provider installs it", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	conf := filepath.Join(directory(t), "dat.conf")
	devices, err := preload()
	assert.NilError(t, err)
	cmd.Env = append(os.Environ(), "DAT_OVERRIDE="+conf, devices)
	if sanitized { // the Go runtime handles the signals and their stacks; memory that only Go refers to looks like a leak
		cmd.Env = append(cmd.Env, "ASAN_OPTIONS=detect_leaks=0:handle_segv=0:use_sigaltstack=0")
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
	for _, device := range []string{"mem0", "loop0", "tcp", "tcp:::1"} {
		t.Run(device, func(t *testing.T) {
			conf, err := os.ReadFile(filepath.Join(directory(t), "dat.conf"))
			assert.NilError(t, err)
			if device == "tcp:::1" && !bytes.Contains(conf, []byte(device)) {
				t.Skip("this host has no IPv6")
			}
			out := run(t, program(t, filepath.Join(directory(t), "check"), "godat-"+device))
			assert.Assert(t, strings.HasSuffix(out, "ok\n"), out)
		})
	}
	t.Run("strict", func(t *testing.T) {
		out := run(t, program(t, filepath.Join(directory(t), "check"), "strict", "strict"))
		assert.Assert(t, strings.HasSuffix(out, "ok\n"), out)
	})
}

// TestDebug: with GODAT_DEBUG the texts of errors are printed, but not those of empty queues and of
// waits whose time has passed.
func TestDebug(t *testing.T) {
	cmd := program(t, filepath.Join(directory(t), "check"), "godat-mem0")
	cmd.Env = append(cmd.Env, "GODAT_DEBUG=1")
	out := run(t, cmd)
	assert.Assert(t, strings.Contains(out, "godat: udat: pz_free: invalid state (protection zone is in use)"), out)
	assert.Assert(t, !strings.Contains(out, "queue is empty") && !strings.Contains(out, "_wait"), out)
}

// dapltest's feature tests of one process. Its queryinfo gives libdat2 an IA's handle as that of a
// CNO in case 13, which crashes libdat2 with any provider. So queryinfo is left out.
func TestDapltestFeatures(t *testing.T) {
	for _, feature := range []string{"hwconn", "endpoint", "pz", "mem", "connmgt"} {
		t.Run(feature, func(t *testing.T) {
			out := run(t, program(t, "dapltest", "-T", "F", "-D", "godat-mem0", "-f", feature))
			assert.Assert(t, strings.Count(out, "Result: PASS") >= 2, out)
		})
	}
}

func TestDapltestLimits(t *testing.T) {
	for _, limit := range []string{"ia", "pz", "cno", "evd", "ep", "rsp", "psp", "lmr", "rpost", "size_lmr"} {
		t.Run(limit, func(t *testing.T) { // on four adapters
			out := run(t, program(t, "dapltest", "-T", "L", "-D", "godat-mem0", "-m", "40", "-w", "4", "limit_"+limit))
			done := map[string]string{"rpost": "posted per EP: 17", "ia": "s opened: 40", "size_lmr": "OK - stopping now"}
			want, other := done[limit]
			if !other {
				want = "s created: 40"
			}
			assert.Assert(t, strings.Contains(out, want), out)
		})
	}
}

// Two processes of each program, connected over the loop device and over TCP.
func TestPrograms(t *testing.T) {
	for _, device := range []string{"loop0", "tcp"} {
		t.Run(device, func(t *testing.T) { programs(t, "godat-"+device) })
	}
}

func programs(t *testing.T, ia string) {
	const host = "127.0.0.1"
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
		{"reserved", strings.Fields("dapltest -T S"), strings.Fields("dapltest -T T -s " + host +
			" -r -i 20 -t 2 -w 2 client SR 4096 server SR 4096"), true},
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
				cmd := program(t, args[0], append(append(append([]string{}, args[1:at]...), device, ia), args[at:]...)...)
				if ia == "godat-tcp" && !sanitized { // tcp needs no device
					cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "LD_PRELOAD=") })
				}
				return cmd
			}
			log := filepath.Join(t.TempDir(), "server")
			said := func() string {
				text, err := os.ReadFile(log)
				assert.NilError(t, err)
				return string(text)
			}
			var server *exec.Cmd
			serve := func() {
				out, err := os.Create(log)
				assert.NilError(t, err)
				defer out.Close()
				server = with(c.server)
				server.Stdout, server.Stderr = out, out
				assert.NilError(t, server.Start())
			}
			end := func() {
				server.Process.Kill()
				server.Wait()
			}
			serve()
			defer func() { end() }()
			var last string
			for start := time.Now(); ; time.Sleep(100 * time.Millisecond) { // the server needs time to listen
				client := with(c.client)
				text, err := client.CombinedOutput()
				if last = string(text); err == nil && !strings.Contains(last, "failed in file") {
					break
				}
				if time.Since(start) > patience/2 {
					t.Fatalf("%v: %v\n%s\nserver:\n%s", client.Args, err, last, said())
				}
				if strings.Contains(said(), "DAT_CONN_QUAL_IN_USE") { // its port is one of those that any connection may get
					end()
					serve()
				}
			}
			if c.quit {
				run(t, with([]string{"dapltest", "-T", "Q", "-s", host}))
				assert.Assert(t, strings.Contains(last, "End of Work"), last)
			}
			assert.NilError(t, server.Wait(), said())
			for _, bad := range []string{"Error", "error", "mismatch", "fails"} { // dapltest exits with status 0 all the same
				assert.Assert(t, !c.quit || !strings.Contains(last+said(), bad), "%s\nserver:\n%s", last, said())
			}
		})
	}
}
