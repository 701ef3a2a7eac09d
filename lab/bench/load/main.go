//go:build unix

// Command load measures what rdmanet and TCP cost while other work wants the processors: the
// processor time of both ends and their context switches for each operation, and its time. Each
// shape runs in two processes, in rounds that alternate between the kinds of connection.
//
//	go -C lab run ./bench/load                              on tcp beside TCP, quiet and beside two busy loops
//	go -C lab run ./bench/load -device loop0 -loops 0       on another device, quiet
//
// It prints the medians as a table.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godat/godat/rdmanet"
)

// shape is a kind of work.
type shape struct {
	name string
	size int
	ops  int                                       // a multiple of window
	do   func(c net.Conn, b []byte, ops int) error // the client's part
}

var shapes = []shape{
	{"echo", 64, 20000, echo}, {"echo", 4 << 10, 20000, echo}, {"echo", 64 << 10, 5000, echo},
	{"stream", 64 << 10, 10000, stream}, {"stream", 1 << 20, 2000, stream},
	{"dial", 0, 960, nil},
}

const (
	window = 16          // writes of a stream between two answers
	warmUp = 30 * window // operations before the measurement
)

var (
	device = flag.String("device", "tcp:127.0.0.1", "device of rdmanet")
	loops  = flag.String("loops", "0,2", "numbers of busy loops beside")
	rounds = flag.Int("rounds", 5, "rounds of each shape, whose median counts")
	serve  = flag.String("serve", "", "serve connections of this kind (for the command itself)")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if *serve != "" {
		check(server(*serve))
		return
	}
	fmt.Println("| Beside | Work | TCP: us of processor, switches, us | rdmanet | processor, rdmanet to TCP |")
	fmt.Println("|---|---|--:|--:|--:|")
	for _, text := range strings.Split(*loops, ",") {
		n, err := strconv.Atoi(text)
		check(err)
		stop := busy(n)
		for _, s := range shapes {
			var all [2][]cost
			for range *rounds {
				for i, kind := range []string{"tcp", "rdma"} {
					c, err := measure(kind, s)
					check(err)
					all[i] = append(all[i], c)
				}
			}
			a, b := median(all[0]), median(all[1])
			fmt.Printf("| %d loops | %s %d | %v | %v | %.2f |\n", n, s.name, s.size, a, b, b.processor/a.processor)
		}
		stop()
	}
}

// cost is what an operation takes: microseconds of processor time and context switches, both ends
// together, and microseconds.
type cost struct{ processor, switches, time float64 }

func (c cost) String() string {
	return fmt.Sprintf("%.1f, %.2f, %.1f", c.processor, c.switches, c.time)
}

// median returns the cost whose processor time is the median.
func median(all []cost) cost {
	slices.SortFunc(all, func(a, b cost) int { return int(1000 * (a.processor - b.processor)) })
	return all[len(all)/2]
}

// measure runs a shape once, with a server in a process of its own.
func measure(kind string, s shape) (total cost, err error) {
	self, err := os.Executable()
	if err != nil {
		return total, err
	}
	cmd := exec.Command(self, "-serve", kind, "-device", *device)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return total, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return total, err
	}
	if err := cmd.Start(); err != nil {
		return total, err
	}
	defer cmd.Wait()
	defer in.Close() // ends the server
	lines := bufio.NewScanner(out)
	ask := func() (used usage, err error) { // what the server has used so far
		fmt.Fprintln(in)
		if !lines.Scan() {
			return used, io.ErrUnexpectedEOF
		}
		_, err = fmt.Sscan(lines.Text(), &used.processor, &used.switches)
		return used, err
	}
	if !lines.Scan() {
		return total, io.ErrUnexpectedEOF
	}
	address := lines.Text()
	work := func(ops int) error { // dials ops times
		for range ops {
			c, err := dial(kind, address)
			if err != nil {
				return err
			}
			c.Close()
		}
		return nil
	}
	if s.do != nil {
		c, err := dial(kind, address)
		if err != nil {
			return total, err
		}
		defer c.Close()
		b := make([]byte, max(s.size, 16))
		copy(b, fmt.Sprintf("%s %d\n", s.name, s.size))
		if _, err := c.Write(b[:16]); err != nil {
			return total, err
		}
		work = func(ops int) error { return s.do(c, b[:s.size], ops) }
	}
	if err := work(warmUp); err != nil {
		return total, err
	}
	there, err := ask()
	if err != nil {
		return total, err
	}
	here, start := used(), time.Now()
	if err := work(s.ops); err != nil {
		return total, err
	}
	took := time.Since(start)
	hereAfter := used()
	thereAfter, err := ask()
	each := func(a, b int64) float64 { return float64(b-a) / float64(s.ops) }
	return cost{
		(each(here.processor, hereAfter.processor) + each(there.processor, thereAfter.processor)) / 1000,
		each(here.switches, hereAfter.switches) + each(there.switches, thereAfter.switches),
		float64(took.Nanoseconds()) / 1000 / float64(s.ops),
	}, err
}

// usage is what a process has used: nanoseconds of processor time, and context switches.
type usage struct{ processor, switches int64 }

func used() usage {
	var r syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return usage{r.Utime.Nano() + r.Stime.Nano(), int64(r.Nvcsw) + int64(r.Nivcsw)}
}

func dial(kind, address string) (net.Conn, error) {
	if kind == "tcp" {
		return net.Dial("tcp", address)
	}
	return (&rdmanet.Dialer{Device: *device}).DialContext(context.Background(), "rdma", address)
}

func echo(c net.Conn, b []byte, ops int) error {
	for range ops {
		if _, err := c.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
	}
	return nil
}

// stream writes, and reads one byte after each window.
func stream(c net.Conn, b []byte, ops int) error {
	for n := range ops {
		if _, err := c.Write(b); err != nil {
			return err
		}
		if n%window == window-1 {
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// server prints its address, and for each line of its input what it has used.
func server(kind string) (err error) {
	var l net.Listener
	if kind == "tcp" {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	} else {
		l, err = (&rdmanet.ListenConfig{Device: *device}).ListenNet(context.Background(), "rdma", ":0")
	}
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		for {
			c, err := l.Accept()
			check(err)
			go answer(c)
		}
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		u := used()
		fmt.Println(u.processor, u.switches)
	}
	return nil
}

// answer serves a connection until its end.
func answer(c net.Conn) {
	defer c.Close()
	head := make([]byte, 16)
	if _, err := io.ReadFull(c, head); err != nil {
		return // of a dial
	}
	var name string
	var size int
	_, err := fmt.Sscan(string(head), &name, &size)
	check(err)
	b := make([]byte, size)
	for n := 0; ; n++ {
		if _, err := io.ReadFull(c, b); err != nil {
			return
		}
		back := b
		if name == "stream" {
			back = b[:0]
			if n%window == window-1 {
				back = b[:1]
			}
		}
		if len(back) == 0 {
			continue
		}
		if _, err := c.Write(back); err != nil {
			return
		}
	}
}

// busy starts processes that only use processor time.
func busy(n int) (stop func()) {
	var all []*exec.Cmd
	for range n {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		check(cmd.Start())
		all = append(all, cmd)
	}
	return func() {
		for _, cmd := range all {
			cmd.Process.Kill()
			cmd.Wait()
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
