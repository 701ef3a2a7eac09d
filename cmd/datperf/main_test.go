package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

func TestMain(m *testing.M) {
	testscript.Main(leaktest.M{M: m}, map[string]func(){"datperf": main})
}

func TestScripts(t *testing.T) {
	device := os.Getenv("GODAT_TEST_DEVICE")
	dir, files := "testdata/script", []string(nil)
	if testing.Short() && device != "" { // the others need no device
		dir, files = "", []string{"testdata/script/server.txtar", "testdata/script/address.txtar"}
		if device == "loop0" {
			files = append(files, "testdata/script/mesh.txtar", "testdata/script/peer.txtar")
		}
	}
	testscript.Run(t, testscript.Params{
		Dir: dir, Files: files,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DEVICE", device)
			env.Setenv("LD_PRELOAD", os.Getenv("LD_PRELOAD")) // the loop device's library
			return nil
		},
		// verbs: GODAT_TEST_DEVICE names a verbs device. loop: that device is the loop device.
		// bare: this host has no verbs device. guest: that device is rxe0 in the virtual machine.
		// root: the tests run as root.
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "verbs":
				return device != "", nil
			case "loop":
				return device == "loop0", nil
			case "guest":
				return device == "rxe0" && has("10.98.1.1") && !nothing("/sys/class/infiniband/rxe1"), nil
			case "root":
				return os.Geteuid() == 0, nil
			case "bare":
				return device == "" && nothing("/sys/class/infiniband"), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": status, "stranger": stranger, "get": get, "listening": listening,
			"certificate": certificate,
		},
	})
}

func nothing(dir string) bool {
	entries, _ := os.ReadDir(dir)
	return len(entries) == 0
}

// has reports whether this host has an address.
func has(addr string) bool {
	all, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(all, func(a net.Addr) bool { return strings.HasPrefix(a.String(), addr+"/") })
}

// status runs a command that must end with a given exit status, as in: status 2 datperf local
// --size 0.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("status %d, not %d", got, want)
	}
}

// listening waits until TCP ports have listeners.
func listening(ts *testscript.TestScript, neg bool, ports []string) {
	if neg || len(ports) == 0 {
		ts.Fatalf("usage: listening PORT...")
	}
	for _, text := range ports {
		port, err := strconv.Atoi(text)
		ts.Check(err)
		row := regexp.MustCompile(fmt.Sprintf(`:%04X \S+ 0A `, port))
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			v4, _ := os.ReadFile("/proc/net/tcp")
			v6, _ := os.ReadFile("/proc/net/tcp6")
			if row.Match(v4) || row.Match(v6) {
				break
			}
			if time.Now().After(end) {
				ts.Fatalf("nobody listens on port %d", port)
			}
		}
	}
}

// stranger listens on a port and sets an environment variable to its address. To each connection it
// sends a text.
func stranger(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: stranger VARIABLE TEXT...")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { ln.Close() })
	ts.Setenv(args[0], ln.Addr().String())
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			bufio.NewReader(conn).ReadString('\n') // the hello
			fmt.Fprintln(conn, strings.Join(args[1:], " "))
			conn.Close()
		}
	}()
}

// get prints the status and the body of an HTTP response.
func get(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: get URL [PATTERN]")
	}
	var answer string
	for range 600 { // with a pattern, until the answer has it: a server counts after its client has heard
		page, err := http.Get(args[0])
		ts.Check(err)
		body, err := io.ReadAll(page.Body)
		page.Body.Close()
		ts.Check(err)
		answer = fmt.Sprintf("%d %s", page.StatusCode, body)
		if len(args) == 1 || regexp.MustCompile("(?m)"+args[1]).MatchString(answer) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprint(ts.Stdout(), answer)
}

// Idle connections to the port of the metrics use a bounded number of descriptors. New connections
// replace the oldest at once.
func TestMetricsLimits(t *testing.T) {
	var log strings.Builder
	stop, err := servePrometheus("127.0.0.1:0", func(w io.Writer) error {
		_, err := fmt.Fprintln(w,
			"up 1")
		return err
	}, nil, &log)
	assert.NilError(t, err)
	defer func() { assert.NilError(t, stop()) }()
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(log.String())
	files := func() int {
		entries, _ := os.ReadDir("/proc/self/fd")
		return len(entries)
	}
	before := files()
	const idle = 8 * metricsConns
	for range idle {
		conn, err := net.Dial("tcp", address)
		assert.NilError(t, err)
		defer conn.Close()
	}
	time.Sleep(300 * time.Millisecond)
	assert.Assert(t, files()-before <= idle+metricsConns+8, "%d descriptors", files()-before)
	client := http.Client{Timeout: 4 * metricsTime} // waiting for the idle ones takes 7 times metricsTime
	defer client.CloseIdleConnections()
	page, err := client.Get("http://" + address + "/metrics")
	assert.NilError(t, err)
	body, err := io.ReadAll(page.Body)
	assert.NilError(t, err)
	page.Body.Close()
	assert.Equal(t, string(body), "up 1\n")
}

// fullDisk is a disk on which a number of bytes still fit.
type fullDisk struct {
	io.Writer
	room int
}

func (d *fullDisk) Write(b []byte) (int, error) {
	n, err := d.Writer.Write(b[:min(len(b), d.room)])
	d.room -= n
	if err == nil && n < len(b) {
		err = syscall.ENOSPC
	}
	return n, err
}

// If the disk becomes full, no part of a document and no part of a line of events remains.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	full := func(name string) *sink {
		s, err := openSink(form{flag: "json", file: dir + "/" + name}, nil)
		assert.NilError(t, err)
		s.w = &fullDisk{s.file, 10}
		return s
	}
	s := full("new")
	_, err := s.Write([]byte(`{"many": "bytes"}`))
	assert.ErrorIs(t, s.finish(err), syscall.ENOSPC)
	_, err = os.Stat(dir + "/new")
	assert.ErrorIs(t, err, os.ErrNotExist)

	assert.NilError(t, os.WriteFile(dir+"/old", []byte("old text, longer than the disk has room"), 0o600))
	s = full("old")
	_, err = s.Write([]byte(`{"many": "bytes"}`))
	assert.ErrorContains(t, s.finish(err), "old is empty now")
	left, err := os.ReadFile(dir + "/old")
	assert.NilError(t, err)
	assert.Equal(t, string(left), "")

	s = full("lines")
	_, err = s.Write([]byte("line 1\n"))
	assert.NilError(t, err)
	_, err = s.Write([]byte("line 2\n"))
	assert.ErrorIs(t, err, syscall.ENOSPC)
	s.drop()
	left, err = os.ReadFile(dir + "/lines")
	assert.NilError(t, err)
	assert.Equal(t, string(left), "line 1\n")
}
