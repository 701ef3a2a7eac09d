// Command faults provokes faults on a fabric while two ends exchange checked messages, and reports
// which promises hold. ci/faults.sh runs it on every fabric and makes docs/reliability.md.
//
//	faults [-long] [-run TEXT] [-json FILE] DEVICE     all scenarios, or those whose name contains TEXT
//	faults -host ADDRESS:PORT [DEVICE]                 the other host of a run with -peer-at ADDRESS:PORT
//	faults -page FILE RESULT...                        the page, from the results of all fabrics
//	faults -keep -page FILE RESULT...                  the same, but the page keeps what the results lack
//
// Each end has an adapter with connections of every kind: send and receive, shared receive queue,
// RDMA write and read, memory window. Messages are numbered and checksummed; regions lie between
// canaries; a ledger records every post. The other end is a process of its own. On mem0 it is a
// second adapter in the same process.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

func run() error {
	peerFile := flag.String("peer", "", "be the other end, with its counts in this `file`")
	host := flag.String("host", "", "be the other host: take runners at this `address`")
	at := flag.String("peer-at", "", "the other end is the host at this `address`, which runs faults -host")
	datperf := flag.String("datperf", "", "be a datperf server on this `device`, for a scenario")
	grouped := flag.String("grouped", "", "use this `device` in a control group, for a scenario")
	datperfClient := flag.String("datperf-client", "", "be a client of the datperf server at this `address`")
	stream := flag.String("stream", "", "be the other end of a stream of rdmanet, in this `role`, for a scenario")
	long := flag.Bool("long", false, "run all rounds, for hours")
	groups := flag.String("groups", "", "only scenarios of these `groups`, between commas")
	only := flag.String("run", "", "only scenarios whose name contains this `text`")
	file := flag.String("json", "", "write the results to this `file`")
	page := flag.String("page", "", "write this `page` from the results given, and their sum to standard output")
	keep := flag.Bool("keep", false, "with -page: the page keeps what the results do not have")
	seed := flag.Uint64("seed", 1, "of the random moments")
	soak := flag.Duration("soak", 20*time.Second, "how long the soak lasts; 0: leave it out")
	tests := flag.String("tests", "", "run the scenarios of tests too, with udat.test and cverbs.test of this `folder`")
	retry := flag.Int("retry", -1, "how often a device sends a request again; -1 is the default of udat")
	rounds := flag.Int("rounds", 0, "of every scenario; 0: as the table says")
	flag.Parse()
	switch {
	case *peerFile != "":
		return serveProcess(*peerFile)
	case *host != "":
		return serveHost(*host, flag.Arg(0))
	case *grouped != "":
		return runGrouped(*grouped)
	case *stream != "":
		return serveStream(*stream, flag.Args())
	case *datperf != "":
		return serveDatperf(*datperf)
	case *datperfClient != "":
		return runDatperf(flag.Arg(0), *datperfClient)
	case *page != "":
		var old *oldPage
		if *keep {
			var err error
			if old, err = readPage(*page); err != nil {
				return err
			}
		}
		return writePage(*page, flag.Args(), old)
	case flag.NArg() != 1:
		return fmt.Errorf("give one device, not %d", flag.NArg())
	}
	device := flag.Arg(0)
	r, problems := newRunner(device, *at, *retry, *seed)
	if r == nil || len(problems) > 0 {
		return fmt.Errorf("the first round on %s: %s", device, strings.Join(problems, "; "))
	}
	r.long, r.soak, r.tests = *long, *soak, *tests
	form := 0
	if *long {
		form = 1
	}
	var results []result
	failed := 0
	for i := range scenarios {
		s := &scenarios[i]
		n := s.rounds[r.kind][form]
		if *rounds > 0 && s.why[r.kind] == "" {
			n = *rounds
		}
		if *groups != "" && !slices.Contains(strings.Split(*groups, ","), s.group) {
			continue
		}
		if n == 0 || s.group == "soak" && r.soak == 0 || s.tests && r.tests == "" || !strings.Contains(s.name, *only) {
			continue
		}
		res := r.run(s, n)
		results = append(results, res)
		if *file != "" { // after each scenario, so that the results remain if the machine dies
			if err := writeResults(*file, results); err != nil {
				return err
			}
		}
		verdict := "ok  "
		if len(res.Problems) > 0 {
			verdict = "FAIL"
			failed++
		}
		fmt.Printf("%s %s: %s: %s, %d rounds, worst %v, %d messages, took %v\n", verdict, r.fabric, s.group, s.name,
			res.Rounds, res.Worst.Round(time.Millisecond), res.Messages, res.Took.Round(time.Second/10))
		if len(res.Without) > 0 {
			fmt.Println("     without", strings.Join(res.Without, ", "))
		}
		for _, text := range res.Problems {
			fmt.Println("    ", text)
		}
	}
	if *file != "" && len(results) == 0 { // no scenario was asked for
		if err := writeResults(*file, results); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d scenarios failed on %s", failed, device)
	}
	return nil
}
