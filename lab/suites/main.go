// Command suites runs tests and programs of other projects over rdmanet, and for comparison over
// TCP. It writes docs/suites.md. If a test also fails over TCP, that is not a failure of rdmanet.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	devices := flag.String("devices", "mem0,loop0", "devices beside TCP")
	only := flag.String("suite", "", "only the suites whose package matches this regular expression")
	test := flag.String("test", "", "only this test")
	work := flag.String("work", "", "the folder of copies, binaries and logs; default godat/suites in the user's cache")
	page := flag.String("page", "", "write the table to this file")
	flag.StringVar(&guest, "guest", "", "run the tests in the machine of this script of ci: rxe-vm or uml-vm")
	verbose := flag.Bool("v", false, "print the output of the tests")
	flag.Parse()
	if guest != "" {
		stall = 10 * time.Minute // the guest must start first, and it is slow
	}
	if err := run(strings.Split(*devices, ","), *only, *test, *work, *page, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(devices []string, only, test, work, page string, verbose bool) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if work == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		work = filepath.Join(cache, "godat", "suites")
	}
	w, packs, err := newWorkshop(work, suites)
	if err != nil {
		return err
	}
	var rows []row
	bad := 0
	for _, p := range packs {
		if !chosen.MatchString(p.pkg) {
			continue
		}
		r, err := runSuite(w, p, devices, test, verbose)
		if err != nil {
			return err
		}
		rows = append(rows, r)
		bad += r.print(os.Stdout)
		if page != "" {
			if err := writePage(page, devices, rows, guest); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d differences from TCP are not explained", bad)
	}
	return nil
}

// runSuite runs the tests of a package over TCP and on each of the devices.
func runSuite(w workshop, p pack, devices []string, test string, verbose bool) (row, error) {
	r := row{pack: p, on: map[string]results{}, alone: map[string]string{}}
	begin := time.Now()
	bin, err := w.build(p)
	if err != nil {
		return r, err
	}
	logs := filepath.Join(w.dir, "log")
	for _, folder := range []string{logs, filepath.Dir(countOf(bin))} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return r, err
		}
	}
	for _, dev := range append([]string{""}, devices...) {
		f, err := os.Create(filepath.Join(logs, filepath.Base(bin)+"."+nameOf(dev)))
		if err != nil {
			return r, err
		}
		log := io.Writer(f)
		if verbose {
			log = io.MultiWriter(f, os.Stdout)
		}
		r.on[dev], err = runTests(p, bin, dev, test, log)
		if err != nil {
			return r, err
		}
		if dev != "" {
			r.connections += takeCount(countOf(bin))
		}
		r.again(bin, dev, log)
		f.Close()
	}
	r.took = time.Since(begin).Round(time.Second)
	return r, nil
}

// takeCount removes a file and returns how many bytes it had.
func takeCount(file string) int {
	i, err := os.Stat(file)
	if err != nil {
		return 0
	}
	os.Remove(file)
	return int(i.Size())
}
