// Command verbs reads the installed headers and libraries of rdma-core and generates two files from
// them: cverbs/libcalls.h, the list of functions that cverbs calls in the libraries, and
// docs/verbs.md, the table of what cverbs binds.
//
//	go -C lab run ./verbs [-trace] [DEVICE=FILE...]
//
// With -trace it runs the tests of cverbs on the loop device, and records in calls.tsv which
// functions each test calls there, and in seen.tsv which tests have passed. FILE is the output of
// go test -v ./cverbs on DEVICE. The command records in seen.tsv which tests have passed on this
// device.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// root returns the repository's folder. The working directory must be lab or a folder in it.
func root() string {
	dir, _ := os.Getwd()
	for ; filepath.Base(dir) != "lab" && dir != "/"; dir = filepath.Dir(dir) {
	}
	return filepath.Dir(dir)
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	return strings.TrimSpace(string(out)), err
}

// world is all input of the page docs/verbs.md.
type world struct {
	d     declared
	b     *binding
	notes map[string]noted
	seen  map[string][]string
}

func readWorld() (w world, err error) {
	if w.d, err = readHeaders(); err != nil {
		return w, err
	}
	if w.b, err = readBinding(filepath.Join(root(), "cverbs")); err != nil {
		return w, err
	}
	w.notes, w.seen, w.b.calls = map[string]noted{}, map[string][]string{}, traced{}
	return w, errors.Join(
		readTSV("notes.tsv", 3, func(c []string) { w.notes[c[0]] = noted{c[1], c[2]} }),
		readTSV("seen.tsv", 2, func(c []string) { w.seen[c[0]] = strings.Fields(c[1]) }),
		readTSV("calls.tsv", 2, func(c []string) { w.b.calls[c[0]] = strings.Fields(c[1]) }))
}

func (w *world) rows() []row { return rows(w.d, w.b, w.notes, w.seen) }

func (w *world) page() string { return page(w.d, w.b, w.rows(), w.notes) }

func run(args []string) error {
	w, err := readWorld()
	if err != nil {
		return err
	}
	for _, a := range args {
		if a == "-trace" {
			known := map[string]bool{}
			for _, r := range w.rows() {
				known[r.name] = true
			}
			log, err := os.CreateTemp("", "verbs")
			if err != nil {
				return err
			}
			defer os.Remove(log.Name())
			if w.b.calls, err = trace(known, log); err != nil {
				return err
			}
			a = "loop0=" + log.Name()
		}
		device, file, ok := strings.Cut(a, "=")
		if !ok {
			return fmt.Errorf("%q is not DEVICE=FILE", a)
		}
		if err := record(device, file, w.seen); err != nil {
			return err
		}
	}
	version, err := versions()
	if err != nil {
		return err
	}
	used, err := called(filepath.Join(root(), "cverbs"))
	if err != nil {
		return err
	}
	table, err := calls(w.d, used, version)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"cverbs/libcalls.h": table, "docs/verbs.md": w.page(), "lab/verbs/seen.tsv": seenText(w.seen),
		"lab/verbs/calls.tsv": w.b.calls.text(),
	} {
		if err := os.WriteFile(filepath.Join(root(), name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, p := range problems(w.d, w.b, w.rows(), w.notes) {
		fmt.Fprintln(os.Stderr, "verbs:", p)
	}
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "verbs:", err)
		os.Exit(1)
	}
}
