package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const pageHead = `# Reliability

What godat promises when a fabric, a peer or a host fails, and what happened when the fault was
provoked. The command make faults writes this page, by the program internal/faultlab; make faults
LONG=1 runs all rounds, for hours.

Each round has two ends, on rxe and siw two processes, with connections of every kind that the
device has: send and receive, shared receive queue, RDMA write and read, memory window. Messages
flow in both directions until the fault. Every round checks:

- Messages arrive once, in order and unchanged. No byte beside a region changes. Messages whose
  completion the sender has seen have arrived, even if the sender died.
- Every post completes exactly once, in order; none succeeds after one that failed.
- Each connection ends with one event, of the right kind, within the time of the last column. After
  it the endpoint is DISCONNECTED.
- Every object can be freed. Descriptors, goroutines, threads, pinned memory and the kernel's verbs
  objects return to the baseline.
- The next round connects anew.

On iWARP a completion means that TCP has the message. So the last ones before an end may be lost,
even with a graceful disconnect: TCP resets a connection that is closed with unread data. A Send may
succeed behind an RDMA read that was flushed, and the end that is left may see BROKEN.

On siw the RDMA reads of these rows are longer than 32 bytes. A shorter one may break the connection
if the end that answers it posts at the same time: a thread of the driver (Linux 6.1) then copies
the answer as if it ran in the program's process, and fails with EFAULT. Probes in the kernel showed
that.

Which loss breaks a healthy connection: with 7 retries, the default, none of 1, 5, 10 and 20 % in
both directions for 75 s each; with 6 retries 20 % does. That was soft-RoCE of Linux 7.2 at native
speed, without RDMA reads: at 5 % that driver itself breaks connections with reads, with a warning
of the kernel, at 6 and at 7. So few retries cannot tell a dead peer from a bad link, and the
keep-alive does.

The driver of Linux 6.1 may break a connection that loses packets, with any number of retries: the
peer's driver refuses a message as invalid (REMOTE_RESPONDER, status 9 of the device). The lab saw
that once, while datperf ran between two hosts beside a heavy load. A break with corruption of 10 %,
whose status is not known, was probably the same. perftest shows it as well: ib_send_bw of 6,000
bytes with a timeout of 17 ms, at a loss of 5 %, ended with a failed completion in 8 of 25 runs.

Where soft-RoCE loses its link, its address or its IPv6 route, all connections there break at once.
When the link goes down, the driver of Linux 7.2 flushes them. Otherwise udat breaks them, because
the driver of Linux 6.1 may forget a request that finds no route, and then sends those before it
never again. The other end hears of it when it can be reached again, or from the keep-alive.
Connections over IPv4 go on without a route: each keeps the one that it has found.

Once soft-RoCE of Linux 6.1 has sent a message about a connection into a link that is down, it
connects no more until the device is made anew, and the kernel may never return from destroying a
connection id. So such messages wait until the link is up, and no call waits for ever for the
kernel.

A cell contains the number of rounds, and the longest time from the fault to the last event. Where
the fault does not end the connection, that event is the end of the disconnect after it.
The machine is slow: rxe and siw run in an emulated virtual machine.

While the MTU of a path is too small, soft-RoCE of Linux 6.1 sends the same packets again and again.
The connection stands still and does not break: the keep-alive's packets are small and pass. The
host remembers the small MTU when that of the link is back: as long as packets do not fit, and 10
minutes more. The command ip route get ADDRESS shows it. A route with a locked MTU ends that at
once: ip route add ADDRESS dev NAME mtu lock 1500. The row adds such a route. perftest stands still
in the same way.

That row has no RDMA reads: if soft-RoCE of Linux 6.1 cannot send the answer to a read, it may
report the read as done although no data came. A C program that reads constant memory saw that in 3
of 3 connections.

This page is of a whole run of make faults LONG=1, except for rows that ran later. Two had failed on
siw because of short reads: loss of 5 % and the soak. These rows are newer than that run: requests
that are never confirmed, random private data, connections by each kind of address, datperf between
two hosts, a partition of 60 s, and deleted routes. The other rows about links and peers of two
hosts ran again.
`

//go:embed defects.md
var defects string

func writeResults(path string, results []result) error {
	b, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// writePage writes the page from the files of results, and their sum to standard output.
func writePage(path string, files []string) error {
	var results []result
	var fabrics []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var some []result
		if err := json.Unmarshal(b, &some); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, res := range some {
			if !slices.Contains(fabrics, res.Fabric) {
				fabrics = append(fabrics, res.Fabric)
			}
		}
		results = append(results, some...)
	}
	var b strings.Builder
	b.WriteString(pageHead)
	group, passed, failed := "", 0, 0
	var broken []result
	for i := range scenarios {
		s := &scenarios[i]
		if s.group != group {
			group = s.group
			fmt.Fprintf(&b, "\n## %s\n\n| Scenario | Promise |", strings.ToUpper(group[:1])+group[1:])
			for _, f := range fabrics {
				fmt.Fprintf(&b, " %s |", f)
			}
			fmt.Fprintf(&b, " Within |\n|---|---|%s---|\n", strings.Repeat("---|", len(fabrics)))
		}
		fmt.Fprintf(&b, "| %s | %s |", s.name, s.promise)
		for _, f := range fabrics {
			at := slices.IndexFunc(results, func(res result) bool {
				return res.Fabric == f && res.Group == s.group && res.Name == s.name
			})
			if at < 0 {
				fmt.Fprintf(&b, " %s |", orDash(s.why[kindOf(f)]))
				continue
			}
			res := results[at]
			if len(res.Problems) > 0 {
				failed++
				broken = append(broken, res)
				fmt.Fprintf(&b, " **FAILED** in %d |", res.Rounds)
				continue
			}
			passed++
			fmt.Fprintf(&b, " %d, %v |", res.Rounds, res.Worst.Round(time.Millisecond))
		}
		fmt.Fprintf(&b, " %v |\n", s.within)
	}
	if figure := filepath.Join(filepath.Dir(path), "soak.svg"); drawSoak(figure, results) {
		b.WriteString("\n![What a soak has in use over its time](soak.svg)\n")
	}
	b.WriteString(defects)
	if len(broken) > 0 {
		b.WriteString("\n## Failed\n\n")
		for _, res := range broken {
			b.WriteString(folded(fmt.Sprintf("- %s, %s: %s", res.Fabric, res.Name, res.Problems[0])))
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return err
	}
	fmt.Printf("faults: %d passed, %d failed\n", passed, failed)
	if failed > 0 || passed == 0 {
		return errors.New("a promise is broken, or nothing ran")
	}
	return nil
}

// folded is an item of a list in lines of up to 100 columns.
func folded(text string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len([]rune(word)) > 100:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len([]rune(word))
	}
	return b.String() + "\n"
}

// kindOf is the kind of a fabric of the page.
func kindOf(fabric string) string {
	if strings.Contains(fabric, "two hosts") {
		return "cable"
	}
	return strings.TrimRight(fabric, "0123456789")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
