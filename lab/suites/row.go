package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// row contains the results of a suite.
type row struct {
	pack
	on          map[string]results // results by device; "" is TCP
	connections int                // number of connections over rdmanet, on all devices
	took        time.Duration
	alone       map[string]string // result of running a test twice more, alone; the key is device and test
}

// difference is a test that fails on a device and passes over TCP.
type difference struct {
	device, test string
	label        string // name of the test, or of the entry in explained that covers it
	what         outcome
	alone        string
	why          string
}

func (d difference) reason() string {
	if d.why == "" {
		return "NOT EXPLAINED"
	}
	return d.why
}

func nameOf(device string) string {
	if device == "" {
		return "TCP"
	}
	return device
}

func (r row) title() string { return strings.TrimPrefix(r.pkg, "github.com/godat/godat/lab/suites/") }

// differences returns the tests that failed on a device and passed over TCP. If a subtest is among
// them, its parent is left out.
func (r row) differences(device string) (list []string) {
	for name, o := range r.on[device] {
		if o.bad() && !r.on[""][name].bad() {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return slices.DeleteFunc(list, func(name string) bool { // the subtest says more
		return slices.ContainsFunc(list, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

// all returns the differences on all given devices.
func (r row) all(devices []string) (list []difference) {
	for _, dev := range devices {
		for _, name := range r.differences(dev) {
			d := difference{device: dev, test: name, what: r.on[dev][name], alone: r.alone[dev+" "+name]}
			d.label, d.why = explanation(r.pkg, name)
			if d.why == "" && d.alone == repeated(0) {
				d.why = "does not repeat alone"
			}
			list = append(list, d)
		}
	}
	return list
}

// The method again repeats the tests that differ from TCP without a known reason. It runs each of
// them twice, alone.
func (r *row) again(bin, device string, log io.Writer) {
	if device == "" {
		return
	}
	for _, name := range r.differences(device) {
		if _, why := explanation(r.pkg, name); why != "" {
			continue
		}
		bad := 0
		for range 2 {
			got, err := runTests(r.pack, bin, device, name, log)
			if err != nil || got[name].bad() {
				bad++
			}
		}
		r.alone[device+" "+name] = repeated(bad)
	}
}

func repeated(bad int) string { return fmt.Sprintf("%d of 2 failed", bad) }

// print prints the counts and the differences. It returns the number of differences without a
// reason.
func (r row) print(out io.Writer) (unexplained int) {
	fmt.Fprintf(out, "%-40s", r.title())
	devices := slices.Sorted(maps.Keys(r.on))
	for _, dev := range devices {
		ran, good := r.on[dev].count()
		fmt.Fprintf(out, " %s %d/%d", nameOf(dev), good, ran)
	}
	fmt.Fprintf(out, ", %d connections, %v\n", r.connections, r.took)
	if r.connections == 0 {
		fmt.Fprintln(out, "    no connection used rdmanet")
		unexplained++
	}
	for _, d := range r.all(devices) {
		if d.why == "" {
			unexplained++
		}
		fmt.Fprintf(out, "    %s %s %s (%s): %s\n", d.device, d.what, d.test, d.alone, d.reason())
	}
	return unexplained
}
