package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/engine"
	perf "github.com/godat/godat/internal/perf/result"
)

// Bounds of the memory of a server under abuse, in bytes. The server is started with the limit
// datperfCases for the memory of all cases, which are the measurements that clients ask for.
// Everything else that clients make the server use must not exceed datperfElse; SECURITY.md states
// this bound.
const (
	datperfCases = 64 << 20
	datperfElse  = 32 << 20
)

// kept is the number of KiB that the Go runtime of a server may keep.
var kept = 16 << 10

// datperfRun runs a well-behaved client for the duration d, or for 100 iterations if d is 0. It
// calls onBegin, unless nil, when the measurement starts.
func datperfRun(ctx context.Context, device, addr string, d time.Duration, onBegin func()) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	c := perf.Default()
	c.Iters = 100
	if d > 0 {
		c.Iters, c.Duration = 0, perf.Seconds(d)
	}
	c.Complete()
	cl := &engine.Client{Setup: engine.Setup{Device: device, Version: "faults"}}
	cl.Watcher.Case = func(int, int, *perf.Case, int) {
		if onBegin != nil {
			onBegin()
		}
	}
	_, err = cl.Run(ctx, conn, engine.Plan{Cases: []perf.Case{c}, Repeats: 1})
	return err
}

// serveDatperf is the main function of a process with a datperf server and a proper client of this
// server. Both are in one process, because mem0 reaches no other process. It reads orders, one in
// each line, and answers each with a line.
func serveDatperf(device string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &engine.Server{Setup: engine.Setup{Device: device, Version: "faults"}, MaxMemory: datperfCases}
	go s.Serve(context.Background(), ln)
	fmt.Println(ln.Addr())
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		switch orders.Text() {
		case "run":
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			err := datperfRun(ctx, device, ln.Addr().String(), 0, nil)
			cancel()
			fmt.Println(strconv.Quote(fmt.Sprint(err)))
		case "vanish": // as a client that is killed in mid-run
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(200*time.Millisecond, cancel)
			datperfRun(ctx, device, ln.Addr().String(), patience, nil)
			fmt.Println("gone")
		case "count":
			debug.FreeOSMemory()
			fmt.Println(runtime.NumGoroutine())
		}
	}
	return nil
}

// runDatperf is the main function of a client process. It prints a line when the measurement
// begins.
func runDatperf(device, addr string) error {
	return datperfRun(context.Background(), device, addr, patience, func() { fmt.Println("began") })
}

// datperf is a server under abuse.
type datperf struct {
	r       *round
	process *exec.Cmd
	addr    string
	orders  io.Writer
	answers *bufio.Scanner
	conns   []net.Conn // connections of the abuse that are still open
}

func startDatperf(r *round) (*datperf, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	d := &datperf{r: r, process: exec.Command(self, "-datperf", r.device)}
	d.process.Stderr = os.Stderr
	if d.orders, err = d.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := d.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.process.Start(); err != nil {
		return nil, err
	}
	d.answers = bufio.NewScanner(out)
	d.addr, err = d.answer()
	return d, err
}

func (d *datperf) answer() (string, error) {
	if !d.answers.Scan() {
		return "", fmt.Errorf("the server has ended: %v", d.answers.Err())
	}
	return d.answers.Text(), nil
}

func (d *datperf) order(what string) (string, error) {
	if _, err := fmt.Fprintln(d.orders, what); err != nil {
		return "", err
	}
	return d.answer()
}

// serves runs a proper client, which must be served.
func (d *datperf) serves() error {
	text, err := d.order("run")
	if err == nil && text != `"<nil>"` {
		err = errors.New(text)
	}
	if err != nil {
		return fmt.Errorf("a proper client is not served: %w", err)
	}
	return nil
}

// uses returns the resources that the server's process uses after it has freed what it can.
func (d *datperf) uses() (baseline, error) {
	text, err := d.order("count")
	if err != nil {
		return nil, err
	}
	b := processOf(strconv.Itoa(d.process.Process.Pid))
	b["goroutines"], err = strconv.Atoi(text)
	delete(b, "threads")
	return b, err
}

// client opens a connection that stays open, sends lines, and returns a reader of the server's
// answers.
func (d *datperf) client(lines ...string) (*bufio.Reader, error) {
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		return nil, err
	}
	d.conns = append(d.conns, conn)
	conn.SetDeadline(time.Now().Add(patience))
	for _, line := range lines {
		if _, err := io.WriteString(conn, line+"\n"); err != nil {
			return nil, err
		}
	}
	return bufio.NewReader(conn), nil
}

// datperfHello is the first message of a client.
var datperfHello = fmt.Sprintf(`{"kind":"hello","magic":"datperf","protocol":%d,"version":"v1","cases":9}`,
	engine.Protocol)

// datperfCase makes a case, which describes a measurement. It passes the case to edit, and returns
// the message that asks for the edited case.
func datperfCase(edit func(*perf.Case)) string {
	c := perf.Default()
	edit(&c)
	c.Complete()
	b, _ := json.Marshal(map[string]any{"kind": "case", "case": &c})
	return string(b)
}

// abusing returns the function of a scenario: a server is abused while the links of the round carry
// traffic. A proper client must be served during the abuse and after it. The server's memory must
// stay bounded and be given back.
func abusing(abuse func(*datperf) error) func(*round) error {
	return func(r *round) error {
		d, err := startDatperf(r)
		if err != nil {
			return err
		}
		defer func() {
			for _, conn := range d.conns {
				conn.Close()
			}
			d.process.Process.Kill()
			d.process.Wait()
		}()
		if err := d.serves(); err != nil {
			return err
		}
		before, err := d.uses()
		if err != nil {
			return err
		}
		pid := strconv.Itoa(d.process.Process.Pid)
		os.WriteFile(filepath.Join("/proc", pid, "clear_refs"), []byte("5"), 0) // the peak begins anew
		began := time.Now()
		if err := abuse(d); err != nil {
			return err
		}
		if err := d.serves(); err != nil {
			return fmt.Errorf("during the abuse: %w", err)
		}
		peak, limit := processOf(pid)["KiB peak"]-before["KiB resident"], (datperfCases+datperfElse)>>10
		if peak > limit {
			return fmt.Errorf("the server takes %d KiB more, must take at most %d", peak, limit)
		}
		for _, conn := range d.conns {
			conn.Close()
		}
		var after baseline
		back := func() baseline {
			if after, err = d.uses(); err != nil {
				return nil
			}
			after["KiB resident"] -= kept
			delete(after, "KiB peak")
			return after
		}
		if left := before.settle(back); left != "" || err != nil {
			return fmt.Errorf("left behind at the server: %s %v", left, err)
		}
		if err := d.serves(); err != nil {
			return fmt.Errorf("%v after the abuse: %w", time.Since(began), err)
		}
		return r.goOn()
	}
}

// expectRefusal sends lines, and expects that the server answers the last one with an error or
// closes the connection.
func (d *datperf) expectRefusal(lines ...string) error {
	answers, err := d.client(lines...)
	if err != nil {
		return nil // the server has closed the connection while the lines were sent
	}
	for {
		text, err := answers.ReadString('\n')
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout():
			return fmt.Errorf("no answer to %.200s", lines[len(lines)-1])
		case err != nil || strings.Contains(text, `"kind":"error"`):
			return nil
		case strings.Contains(text, `"kind":"ready"`):
			return fmt.Errorf("the server takes %.200s", lines[len(lines)-1])
		}
	}
}

func randomBytes(d *datperf) error {
	for i := range 50 {
		b := make([]byte, 1+d.r.random.IntN(64<<10))
		for j := range b {
			b[j] = byte(d.r.random.Uint32())
		}
		if i%2 == 0 {
			b = append([]byte(datperfHello+"\n"), b...) // after a proper hello
		}
		if err := d.expectRefusal(string(b)); err != nil {
			return err
		}
	}
	return nil
}

// longLine sends a line of 1 GiB, or as much of it as the server accepts.
func longLine(d *datperf) error {
	part := strings.Repeat(`{"kind":"`, 8<<10)
	for _, first := range []string{"", datperfHello + "\n"} {
		conn, err := net.Dial("tcp", d.addr)
		if err != nil {
			return err
		}
		conn.SetDeadline(time.Now().Add(patience))
		go io.Copy(io.Discard, conn)
		_, err = io.WriteString(conn, first)
		sent := 0
		for err == nil && sent < 1<<30 {
			_, err = io.WriteString(conn, part)
			sent += len(part)
		}
		conn.Close()
		if err == nil {
			return errors.New("the server takes a line of 1 GiB")
		}
	}
	return nil
}

func idleConnections(d *datperf) error {
	for range 500 {
		if _, err := d.client(); err != nil {
			return err
		}
	}
	return nil
}

func halfPlans(d *datperf) error {
	c := datperfCase(func(c *perf.Case) { c.Size = 64 << 10 })
	for _, lines := range [][]string{{datperfHello}, {datperfHello, c[:len(c)/2]}, {datperfHello, c},
		{datperfHello, c, `{"kind":"connected","memory":{"addr":1,"key":2}}`},
		{datperfHello, c, `{"kind":"sent","counts":[18446744073709551615]}`, `{"kind":"end","end":{}}`}} {
		for range 4 {
			if _, err := d.client(lines...); err != nil {
				return err
			}
		}
	}
	time.Sleep(300 * time.Millisecond) // by now the server holds the plans
	return nil
}

func absurdPlans(d *datperf) error {
	for _, change := range []func(*perf.Case){
		func(c *perf.Case) { c.Size = math.MaxInt64 },
		func(c *perf.Case) { c.Size = -1 },
		func(c *perf.Case) { c.Test, c.Mode, c.Size, c.Depth = perf.Write, perf.Bandwidth, 1<<30, 1<<14 },
		func(c *perf.Case) { c.QPs = math.MaxInt32 },
		func(c *perf.Case) { c.Mode, c.Depth = perf.Bandwidth, math.MaxInt32 },
		func(c *perf.Case) { c.RxDepth = math.MaxInt32 },
		func(c *perf.Case) { c.Mode, c.Depth = perf.Bandwidth, math.MinInt32 },
		func(c *perf.Case) { c.Test = "\x1b[2J" },
	} {
		if err := d.expectRefusal(datperfHello, datperfCase(change)); err != nil {
			return err
		}
	}
	for _, line := range []string{`{"kind":"case"}`, `{"kind":"case","case":{"size_bytes":1e300}}`,
		`{"kind":"case","case":[]}`, `{"kind":"mesh"}`, `{"kind":"go"}`, `{"kind":"welcome"}`, `[[[[`,
		`null`} {
		if err := d.expectRefusal(datperfHello, line); err != nil {
			return err
		}
	}
	return nil
}

func otherProtocols(d *datperf) error {
	for _, line := range []string{"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH_9.2", "\x16\x03\x01\x02\x00\x01\x00\n",
		`{"kind":"hello","magic":"other","protocol":4}`, `{"kind":"hello","magic":"datperf","protocol":0}`,
		`{"kind":"hello","magic":"datperf","protocol":-1}`, `{"kind":"hello","magic":"datperf","protocol":99}`} {
		if err := d.expectRefusal(line); err != nil {
			return err
		}
	}
	return nil
}

// killedClients kills clients while they measure. On mem0 a client is not a process: it ends when
// its context ends.
func killedClients(d *datperf) error {
	for range 3 {
		if d.r.device == "mem0" {
			if _, err := d.order("vanish"); err != nil {
				return err
			}
			continue
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		client := exec.Command(self, "-datperf-client", d.addr, d.r.device)
		client.Stderr = os.Stderr
		out, err := client.StdoutPipe()
		if err != nil {
			return err
		}
		if err := client.Start(); err != nil {
			return err
		}
		_, err = bufio.NewReader(out).ReadString('\n')
		time.Sleep(time.Duration(200+d.r.random.IntN(1000)) * time.Millisecond) // it connects and measures
		client.Process.Kill()
		client.Wait()
		if err != nil {
			return fmt.Errorf("the client to be killed: %w", err)
		}
	}
	return nil
}

// datperfRow returns a row. If connects is false, the row does not run on verbs devices, except
// with -long.
func datperfRow(name string, connects bool, abuse func(*datperf) error) scenario {
	bounded := 0
	if connects {
		bounded = 1
	}
	return scenario{group: "datperf server", name: name, act: abusing(abuse), ends: disconnected, within: soon,
		promise: fmt.Sprintf("a proper client is served during it and after; at most %d MiB beside --max-memory, "+
			"given back; other connections go on", datperfElse>>20),
		rounds: map[string][2]int{"mem": {1, 20}, "tcp": {1, 20}, "rxe": {bounded, 5}, "siw": {bounded, 2}}}
}

var datperfGroup = []scenario{
	datperfRow("random bytes on 50 connections", false, randomBytes),
	datperfRow("a line of 1 GiB, before a hello and after it", false, longLine),
	datperfRow("500 idle connections", true, idleConnections),
	datperfRow("20 half plans", true, halfPlans),
	datperfRow("absurd plans and messages", false, absurdPlans),
	datperfRow("other protocols and versions", false, otherProtocols),
	datperfRow("clients killed in mid-run", true, killedClients),
}
