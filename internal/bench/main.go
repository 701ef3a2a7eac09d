// Command bench measures godat beside the programs that its users know, and writes docs/performance.md and out/performance.json.
// ci/bench.sh builds what it needs and starts it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	bin     string // folder with datperf, loop, pingpong and the test binary
	json    string // file with all repeats
	device  string
	address string
	rounds  int
	quick   bool
	dapl    []string // environment for clients of dapltest
	guest   bool     // this is the virtual machine
	cpus    []int    // of the server and of the client, where they poll
	plain   bool     // perftest does not send inline on the device, so that cverbs must not either
	doc     *Document
}

// part measures one of the things; device tells those that need a verbs device.
type part struct {
	name, title string
	device      bool
	run         func(*bench, *Part) error
}

var parts = []part{
	{"loop", "The library on a model of a NIC, at native speed", false, (*bench).loop},
	{"scale", "Scale on mem0", false, (*bench).scaleMem},
	{"compare", "Beside perftest and dapltest", true, (*bench).compare},
	{"scale", "Scale on a verbs device", true, (*bench).scaleDevice},
	{"wakeup", "Wake-up of an event-driven wait", true, (*bench).wakeup},
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
	f.StringVar(&b.device, "device", "", "verbs device")
	f.StringVar(&b.address, "address", "", "its IP address")
	f.IntVar(&b.rounds, "rounds", 5, "repeats of every figure")
	f.BoolVar(&b.quick, "quick", false, "few operations, one round: to see that it works")
	docs := f.String("docs", "docs", "folder for performance.md")
	f.StringVar(&b.json, "json", "out/performance.json", "file for all repeats")
	vm := f.Bool("vm", false, "what needs a device runs in the virtual machine")
	inside := f.String("inside", "", "this is the virtual machine: write the document to this file")
	render := f.String("render", "", "measure nothing: write performance.md anew from such a file")
	f.Parse(args)
	if *render != "" {
		return renderAgain(*render, *docs)
	}
	var err error
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	b.guest = *inside != ""
	names := f.Args()
	for _, n := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == n }) {
			return fmt.Errorf("there is no part %q (loop, scale, compare, wakeup)", n)
		}
	}
	if b.quick {
		b.rounds = 1
	}
	if b.rounds < 1 {
		return fmt.Errorf("--rounds %d: must be at least 1", b.rounds)
	}
	if !*vm && b.device != "" && b.address == "" {
		return errors.New("--device needs its --address")
	}
	b.cpus = processors(b.device)
	if *inside == "" {
		for _, dir := range []string{*docs, filepath.Dir(b.json)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
	}
	wanted := func(p part) bool { return len(names) == 0 || slices.Contains(names, p.name) }
	b.doc = &Document{
		Schema: Schema, Started: time.Now().UTC().Truncate(time.Second), Command: strings.TrimSpace("make bench BENCH='" + strings.Join(names, " ") + "'"),
		Rounds: b.rounds, Units: units, Environment: environment(*inside != ""),
	}
	if len(names) == 0 {
		b.doc.Command = "make bench"
	}
	if *inside != "" {
		for _, p := range parts {
			if p.device && wanted(p) {
				b.part(p)
				if err := writeJSON(*inside, b.doc); err != nil { // after each: the time limit may end it
					return err
				}
			}
		}
		return nil
	}
	fmt.Fprintln(os.Stderr, "bench: nothing else should run on this machine now")
	needsDevice := false
	for _, p := range parts {
		switch {
		case !wanted(p):
		case !p.device || !*vm && b.device != "":
			b.part(p)
		case *vm:
			needsDevice = true
		}
	}
	if needsDevice {
		b.virtualMachine(names)
	}
	return b.finish(*docs)
}

// part measures one part into the document.
func (b *bench) part(p part) {
	out := &Part{Name: p.name, Title: p.title, LoadStart: loadAverage()}
	b.doc.Parts = append(b.doc.Parts, out)
	begin := time.Now()
	fmt.Fprintf(os.Stderr, "bench: %s\n", p.title)
	func() {
		defer func() {
			if r := recover(); r != nil {
				out.Error = fmt.Sprint("panic: ", r)
			}
		}()
		if err := p.run(b, out); err != nil {
			out.Error = err.Error()
		}
	}()
	out.Seconds, out.LoadEnd = time.Since(begin).Round(time.Second).Seconds(), loadAverage()
}

// vmTime bounds the virtual machine's run.
const vmTime = 40 * time.Minute

// virtualMachine runs the parts that need a device in one boot, and takes over what they found.
func (b *bench) virtualMachine(names []string) {
	dir := filepath.Join(b.bin, "guest")
	file := filepath.Join(dir, "guest.json")
	os.Remove(file)
	args := []string{"--out", dir, "--timeout", strconv.Itoa(int(vmTime.Seconds())), "--memory", "3072", "--",
		filepath.Join(b.bin, "bench"), "--bin", b.bin, "--device", "rxe0", "--address", "10.98.0.1", "--rounds", strconv.Itoa(b.rounds), "--inside", file}
	if b.quick {
		args = append(args, "--quick")
	}
	cmd := exec.Command("ci/rxe-vm.sh", append(args, names...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	failure := cmd.Run()
	guest := new(Document)
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, guest)
	}
	if err := errors.Join(failure, err); err != nil {
		b.doc.Parts = append(b.doc.Parts, &Part{Name: "vm", Title: "Virtual machine", Error: err.Error()})
	}
	b.doc.Parts = append(b.doc.Parts, guest.Parts...)
	for _, fact := range guest.Environment {
		b.doc.Environment = append(b.doc.Environment, Fact{"guest: " + fact.Name, fact.Value})
	}
}

// finish writes the documents, and fails if anything could not be measured.
func (b *bench) finish(docs string) error {
	if err := writeJSON(b.json, b.doc); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, "performance.md"), []byte(markdown(b.doc)), 0o644); err != nil {
		return err
	}
	met, missed := b.doc.marks()
	fmt.Fprintf(os.Stderr, "bench: %d of %d marks met; see %s\n", met, met+missed, filepath.Join(docs, "performance.md"))
	var failed []string
	for _, p := range b.doc.Parts {
		for _, e := range p.failed() {
			failed = append(failed, p.Title+": "+e)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not measured:\n  %s", strings.Join(failed, "\n  "))
	}
	return nil
}

func renderAgain(file, docs string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := new(Document)
	if err := json.Unmarshal(data, d); err != nil {
		return err
	}
	if d.Schema != Schema {
		return fmt.Errorf("%s: schema is %q, want %q", file, d.Schema, Schema)
	}
	return os.WriteFile(filepath.Join(docs, "performance.md"), []byte(markdown(d)), 0o644)
}

func writeJSON(name string, d *Document) error {
	data, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(data, '\n'), 0o644)
}
