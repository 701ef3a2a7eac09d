// Command bench measures godat beside C, perftest, dapltest and cmtime, and writes
// docs/performance.md and out/performance.json. ci/bench.sh builds what it needs and starts it.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

// notes explains the figures, at the end of the page.
//
//go:embed notes.md
var notes string

// The machines on which parts run that need a verbs device.
const (
	host = "host" // the host's own device
	kvm  = "kvm"  // qemu with KVM
	uml  = "uml"  // User Mode Linux
	tcg  = "tcg"  // qemu without KVM: the figures have no marks
)

// machines has their names in titles.
var machines = map[string]string{
	host: "this host's device", kvm: "soft-RoCE in a virtual machine with KVM", uml: "soft-RoCE in a User Mode Linux",
	tcg: "soft-RoCE in an emulated machine: no measure",
}

// bench is one run.
type bench struct {
	bin     string // folder with the programs
	json    string // file with all repeats
	machine string
	device  string
	address string
	server  []string // command that starts a program on the server's host: ssh HOST; empty: this host
	peer    string   // the server's device
	rounds  int
	quick   bool
	inside  string
	dapl    []string // environment for clients of dapltest
	cpus    []int    // of the server and of the client, where they poll
	plain   bool     // perftest does not send inline on the device, so that cverbs must not either
	doc     *result.Document
}

// part measures one of the things; device marks those that need a verbs device.
type part struct {
	name, title string
	device      bool
	run         func(*bench, *result.Section) error
}

var parts = []part{
	{"loop", "The library on a model of a NIC, at native speed", false, (*bench).loop},
	{"streams", "Streams of rdmanet on a model of a NIC", false, (*bench).streams},
	{"compare", "Beside perftest and dapltest", true, (*bench).compare},
	{"rsockets", "Streams of rdmanet beside rsockets", true, (*bench).streamsOnDevice},
	{"scale", "Many endpoints", true, (*bench).scale},
	// Not without their names.
	{provider, "godat's DAT provider beside the C library's", true, (*bench).provider},
	{nic, "Beside perftest on a NIC", true, (*bench).compareNIC},
}

const (
	provider = "provider"
	nic      = "nic"
)

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
	f.IntVar(&b.rounds, "rounds", 5, "repeats of every figure")
	f.BoolVar(&b.quick, "quick", false, "few operations, one round: to see that it works")
	page := f.String("page", "docs/performance.md", "file for the tables")
	f.StringVar(&b.json, "json", "out/performance.json", "file for all repeats")
	f.StringVar(&b.inside, "inside", "", "this is the guest: write the document to this file")
	render := f.String("render", "", "measure nothing: write the tables of such a document anew")
	f.Parse(args)
	if *render != "" {
		d, err := result.ReadFile(*render)
		if err != nil {
			return err
		}
		return writePage(*page, d)
	}
	var err error
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	names := f.Args()
	for _, n := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == n }) {
			return fmt.Errorf("there is no part %q (loop, streams, compare, rsockets, scale, provider, nic)", n)
		}
	}
	if b.quick {
		b.rounds = 1
	}
	if b.rounds < 1 {
		return fmt.Errorf("--rounds %d: must be at least 1", b.rounds)
	}
	if machines[b.machine] == "" {
		return fmt.Errorf("--machine %q: must be host, kvm, uml or tcg", b.machine)
	}
	if b.machine == host && (b.device == "" || b.address == "") {
		return errors.New("--machine host needs --device and --address")
	}
	b.server = strings.Fields(*server)
	if b.peer == "" {
		b.peer = b.device
	}
	b.cpus = processors(b.device)
	b.doc = &result.Document{
		Schema: result.Schema, Started: time.Now().UTC().Truncate(time.Second), Units: result.Units,
		Command: append([]string{"make", "bench"}, names...), Labels: labels(b.inside != ""),
	}
	if len(names) > 0 {
		b.doc.Command = []string{"make", "bench", "BENCH='" + strings.Join(names, " ") + "'"}
	}
	if b.inside == "" {
		fmt.Fprintln(os.Stderr, "bench: nothing else should run on this machine now")
	}
	inGuest := false
	for _, p := range parts {
		switch {
		case len(names) == 0 && (p.name == provider || p.name == nic) || len(names) > 0 && !slices.Contains(names, p.name):
		case p.device && b.inside == "" && b.machine != host:
			inGuest = true
		case p.device || b.inside == "":
			b.part(p)
		}
	}
	if inGuest {
		b.guest(names)
	}
	return b.finish(*page)
}

// part measures one part into the document.
func (b *bench) part(p part) {
	s := &result.Section{Title: p.title, LoadStart: loadAverage()}
	if p.device {
		s.Title += ", " + machines[b.machine]
	}
	b.doc.Sections = append(b.doc.Sections, s)
	begin := time.Now()
	fmt.Fprintf(os.Stderr, "bench: %s\n", s.Title)
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
	s.Elapsed, s.LoadEnd = result.Seconds(time.Since(begin).Round(time.Second)), loadAverage()
	if b.inside != "" { // after each: the time limit may end it
		writeJSON(b.inside, b.doc)
	}
}

// guestTime bounds the guest's run.
const guestTime = 15 * time.Minute

// inRounds measures everything in turn, b.rounds times, or fewer if another round would last beyond
// the limit.
func (b *bench) inRounds(limit time.Duration, round func() error) error {
	begin := time.Now()
	for i := range b.rounds {
		if took := time.Since(begin); i > 0 && took+took/time.Duration(i) > limit {
			fmt.Fprintf(os.Stderr, "bench: %d rounds: the next would end after more than %v\n", i, limit)
			return nil
		}
		fmt.Fprintf(os.Stderr, "bench: round %d of %d\n", i+1, b.rounds)
		if err := round(); err != nil {
			return err
		}
	}
	return nil
}

// guest runs the parts that need a device in one boot, and takes over what they found.
func (b *bench) guest(names []string) {
	dir := filepath.Join(b.bin, "guest")
	file := filepath.Join(dir, "guest.json")
	os.Remove(file)
	script := "ci/rxe-vm.sh"
	if b.machine == uml {
		script = "ci/uml-vm.sh"
	}
	args := []string{
		"--out", dir, "--timeout", strconv.Itoa(int(guestTime.Seconds())), "--memory", "3072", "--",
		filepath.Join(b.bin, "bench"), "--bin", b.bin, "--machine", b.machine, "--device", "rxe0", "--address", "10.98.0.1",
		"--rounds", strconv.Itoa(b.rounds), "--inside", file,
	}
	if b.quick {
		args = append(args, "--quick")
	}
	cmd := exec.Command(script, append(args, names...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	failure := cmd.Run()
	guest, err := result.ReadFile(file)
	if err := errors.Join(failure, err); err != nil {
		b.doc.Sections = append(b.doc.Sections, &result.Section{Title: "Guest", Errors: []string{err.Error()}})
	}
	if guest == nil {
		return
	}
	b.doc.Sections = append(b.doc.Sections, guest.Sections...)
	b.doc.Client, b.doc.Server = guest.Client, guest.Server
	for name, value := range guest.Labels {
		b.doc.Labels["guest: "+name] = value
	}
}

// finish writes the documents, and fails if anything could not be measured.
func (b *bench) finish(page string) error {
	if b.inside != "" {
		return nil
	}
	if err := errors.Join(writeJSON(b.json, b.doc), writePage(page, b.doc)); err != nil {
		return err
	}
	met, missed := result.Marks(b.doc.Sections...)
	fmt.Fprintf(os.Stderr, "bench: %d of %d marks met; see %s\n", met, met+missed, page)
	var failed []string
	for _, s := range b.doc.Sections {
		for _, e := range s.Failed() {
			failed = append(failed, s.Title+": "+e)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not measured:\n  %s", strings.Join(failed, "\n  "))
	}
	return nil
}

func write(name string, content func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(content(f), f.Close())
}

func writeJSON(name string, d *result.Document) error { return write(name, d.Write) }

func writePage(name string, d *result.Document) error {
	return write(name, func(f io.Writer) error {
		fmt.Fprint(f, "# Performance\n\n")
		err := report.Markdown(f, d)
		fmt.Fprintf(f, "\n## What the figures mean\n\n%s", notes)
		return err
	})
}
