// Command bench compares godat with C, perftest, TCP, libfabric, rsockets and cmtime. It writes
// docs/performance.md with its pictures, docs/performance-details.md and docs/performance.json.
// ci/bench.sh builds what bench needs and starts it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The machines on which the parts that need a verbs device can run.
const (
	host = "host" // the host's own device
	kvm  = "kvm"  // qemu with KVM
	uml  = "uml"  // User Mode Linux
	tcg  = "tcg"  // qemu without KVM: the figures get no verdicts
)

// machines contains the machines' names in titles.
var machines = map[string]string{
	host: "this host's device", kvm: "soft-RoCE in a virtual machine with KVM", uml: "soft-RoCE in a User Mode Linux",
	tcg: "soft-RoCE in an emulated machine: no measure",
}

// bench is one run of the command.
type bench struct {
	bin     string // folder with the programs
	json    string // file with all values
	pages   string // folder of the pages; empty: write no pages
	machine string
	device  string
	address string
	server  []string // command that starts a program on the server's host: ssh HOST; empty: this host
	peer    string   // the server's device
	limit   time.Duration
	most    int // largest number of rounds; 0: until the figures are decided or the time is over
	quick   bool
	inside  bool // this process runs inside the guest
	cpus    []int
	plain   bool // perftest does not send inline on the device, so cverbs must not send inline either
	doc     *document
	now     *section // the section that is being measured
}

// part is one part of the benchmark, which can be measured alone.
type part struct {
	name, title string
	device      bool // it needs a verbs device
	weight      int  // the part's share of the time, relative to other parts
	run         func(*bench, *section) error
}

const (
	partLoop     = "loop"
	partPair     = "pair"
	partTCP      = "tcp"
	partDevice   = "device"
	partProvider = "provider"
	partNIC      = "nic"
)

func parts() []part {
	return []part{
		{partLoop, "The library beside C, on a model of a NIC, in one process", false, 1, (*bench).loop},
		{partPair, "Two processes on a model of a NIC", false, 4, (*bench).pair},
		{partTCP, "RDMA over TCP, without a device", false, 3, (*bench).tcp},
		{partDevice, "Beside rsockets and cmtime", true, 2, (*bench).onDevice},
		// The following parts run only if they are named on the command line.
		{partProvider, "godat's DAT provider beside the C library's", true, 2, (*bench).provider},
		{partNIC, "Beside perftest on a NIC", true, 4, (*bench).nic},
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	f := flag.NewFlagSet("bench", flag.ExitOnError)
	b := &bench{}
	f.StringVar(&b.bin, "bin", "out/bench", "folder with the programs, as ci/bench.sh builds them")
	f.StringVar(&b.machine, "machine", tcg, "where parts that need a device run: host, kvm, uml or tcg")
	f.StringVar(&b.device, "device", "", "verbs device")
	f.StringVar(&b.address, "address", "", "IP address of the server's device")
	server := f.String("server", "", "command that runs a program on the server's host: ssh HOST")
	f.StringVar(&b.peer, "server-device", "", "the server's device, if not that of --device")
	total := f.Duration("time", 20*time.Minute, "of all parts together; one that ends early leaves its rest to the others")
	f.IntVar(&b.most, "rounds", 0, "at most so many; 0: until the figures are decided or the time is over")
	f.BoolVar(&b.quick, "quick", false, "few operations, one round: to see that it works")
	f.StringVar(&b.pages, "pages", "docs", "folder for the pages and the pictures; empty: none")
	f.StringVar(&b.json, "json", "docs/performance.json", "file for all values; parts that are not measured stay in it")
	f.BoolVar(&b.inside, "inside", false, "this is the guest")
	render := f.Bool("render", false, "measure nothing: write the pages of the file anew")
	f.Parse(args)
	var err error
	if b.doc, err = readDocument(b.json); err != nil {
		return err
	}
	if *render {
		return b.writePages()
	}
	todo, err := choose(f.Args(), b.inside)
	if err != nil {
		return err
	}
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	if b.quick {
		b.most = 1
	}
	if b.most < 0 || *total <= 0 {
		return errors.New("--rounds and --time must not be negative")
	}
	if machines[b.machine] == "" {
		return fmt.Errorf("--machine %q: must be host, kvm, uml or tcg", b.machine)
	}
	needsDevice := slices.ContainsFunc(todo, func(p part) bool { return p.device })
	if needsDevice && b.machine == host && (b.device == "" || b.address == "") {
		return errors.New("--machine host needs --device and --address")
	}
	b.server = strings.Fields(*server)
	if b.peer == "" {
		b.peer = b.device
	}
	b.cpus = processors(b.device)
	if !b.inside {
		fmt.Fprintln(os.Stderr, "bench: nothing else should run on this machine now")
	}
	return b.all(todo, *total)
}

// choose returns the parts with the given names. Without names it returns the parts that run by
// default. Inside a virtual machine (the guest), no part runs by default.
func choose(names []string, inside bool) (todo []part, err error) {
	var known []string
	for _, p := range parts() {
		known = append(known, p.name)
		named := slices.Contains(names, p.name)
		if named || len(names) == 0 && !inside && p.name != partProvider && p.name != partNIC {
			todo = append(todo, p)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("there is no part %q (%s)", n, strings.Join(known, ", "))
		}
	}
	return todo, nil
}

// all measures the parts and writes the files after each part. Each part gets its share of the time
// that is left. If the run is interrupted, the files have new values only for the parts that had
// ended.
func (b *bench) all(todo []part, total time.Duration) error {
	end := time.Now().Add(total)
	weights := 0
	for _, p := range todo {
		weights += p.weight
	}
	var failed []string
	for _, p := range todo {
		b.limit = (max(time.Until(end), 0) * time.Duration(p.weight) / time.Duration(weights)).Round(time.Second)
		weights -= p.weight
		var s *section
		if p.device && !b.inside && b.machine != host {
			s = b.guest(p)
		} else {
			s = b.measure(p)
		}
		for _, e := range s.failed() {
			failed = append(failed, s.Title+": "+e)
		}
		if len(s.Tables) == 0 && b.doc.section(p.name) != nil {
			continue // the part could not begin: keep what was measured before
		}
		b.doc.put(s)
		if err := errors.Join(b.doc.write(b.json), b.writePages()); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not measured:\n  %s", strings.Join(failed, "\n  "))
	}
	return nil
}

// measure measures one part in this process.
func (b *bench) measure(p part) *section {
	s := &section{Name: p.name, Title: p.title, Started: time.Now().UTC().Truncate(time.Second), Short: b.quick,
		LoadStart: loadAverage(), Machine: machine()}
	if !b.inside {
		s.Commit = commit()
	}
	if p.device {
		s.Title += ", " + machines[b.machine]
		s.Unjudged = b.machine == tcg
	}
	b.now = s
	fmt.Fprintf(os.Stderr, "bench: %s, %v\n", s.Title, b.limit.Round(time.Second))
	func() {
		defer func() {
			if r := recover(); r != nil {
				s.Errors = append(s.Errors, fmt.Sprint("panic: ", r))
			}
		}()
		if err := p.run(b, s); err != nil {
			s.Errors = append(s.Errors, err.Error())
		}
	}()
	s.Seconds, s.LoadEnd = time.Since(s.Started).Round(time.Second).Seconds(), loadAverage()
	return s
}

// guest measures a part that needs a device, in a virtual machine.
func (b *bench) guest(p part) *section {
	dir := filepath.Join(b.bin, "guest")
	file := filepath.Join(dir, "guest.json")
	os.Remove(file)
	script := "ci/rxe-vm.sh"
	if b.machine == uml {
		script = "ci/uml-vm.sh"
	}
	limit := b.limit + bootTime
	args := []string{
		"--out", dir, "--timeout", fmt.Sprint(int(limit.Seconds())), "--memory", "3072", "--",
		filepath.Join(b.bin, "bench"), "--bin", b.bin, "--machine", b.machine, "--device", "rxe0", "--address", "10.98.0.1",
		"--rounds", fmt.Sprint(b.most), "--time", b.limit.String(), "--inside", "--pages=", "--json", file,
	}
	if b.quick {
		args = append(args, "--quick")
	}
	cmd := exec.Command(script, append(args, p.name)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	failure := cmd.Run()
	d, err := readDocument(file)
	if err == nil && d.section(p.name) != nil { // the section contains the errors of the guest
		s := d.section(p.name)
		s.Commit = commit()
		return s
	}
	if err == nil {
		err = errors.New("the guest has left no document")
	}
	return &section{Name: p.name, Title: p.title, Started: time.Now().UTC().Truncate(time.Second), Commit: commit(),
		Machine: machine(), Errors: []string{errors.Join(failure, err).Error()}}
}

// bootTime is the time that a guest may need in addition to the time for its rows. The guest must
// boot, and its last row may begin just before the time for rows is over.
const bootTime = 3 * time.Minute
