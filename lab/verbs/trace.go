package main

import (
	"debug/elf"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// traced has the functions of the libraries that each test of cverbs calls on the loop device.
type traced map[string][]string

// tests returns the tests that call a function.
func (t traced) tests(function string) (all []string) {
	for test, functions := range t {
		if slices.Contains(functions, function) {
			all = append(all, test)
		}
	}
	slices.Sort(all)
	return all
}

// text returns the text of calls.tsv.
func (t traced) text() string {
	var b strings.Builder
	b.WriteString("test\tcalls on the loop device\n")
	for _, test := range slices.Sorted(maps.Keys(t)) {
		b.WriteString(test + "\t" + strings.Join(t[test], " ") + "\n")
	}
	return b.String()
}

// trace runs each test of cverbs alone, with a copy of the loop device that records which of its
// functions are called, and writes what the tests write to log. Tests that fail, or that call no
// function, are not in the result.
func trace(known map[string]bool, log io.Writer) (traced, error) {
	dir, err := os.MkdirTemp("", "verbs")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	library, program := filepath.Join(dir, "libloop.so"), filepath.Join(dir, "cverbs.test")
	calls := filepath.Join(dir, "calls")
	loop := filepath.Join(root(), "lab/loopdev")
	for _, args := range [][]string{
		{"cc", "-O1", "-g", "-fPIC", "-shared", "-ftls-model=initial-exec", "-finstrument-functions", "-o", library,
			loop + "/loopdev.c", loop + "/loopcm.c", loop + "/trace.c", "-Wl,--no-as-needed", "-libverbs", "-lrdmacm"},
		{"go", "test", "-c", "-o", program, "./cverbs"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = root()
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", args, err, out)
		}
	}
	symbols, err := functionsOf(library)
	if err != nil {
		return nil, err
	}
	list, err := output(program, "-test.list", "^Test")
	if err != nil {
		return nil, err
	}
	all := traced{}
	for _, test := range strings.Fields(list) {
		if test == "TestNoticed" || strings.HasPrefix(test, "TestKinds") { // they try what the device does not have
			continue
		}
		os.Remove(calls)
		cmd := exec.Command(program, "-test.run", "^"+test+"$", "-test.short", "-test.v", "-test.timeout", "2m")
		cmd.Dir = filepath.Join(root(), "cverbs")
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "GODAT_TEST_DEVICE=loop0", "GODAT_LOOP_TRACE="+calls)
		out, err := cmd.CombinedOutput()
		if err != nil {
			fmt.Fprintf(os.Stderr, "verbs: %s: %v\n%s", test, err, out)
			continue
		}
		text, _ := os.ReadFile(calls)
		log.Write(out)
		if functions := symbols.called(string(text), known); functions != nil {
			all[test] = functions
		}
	}
	return all, nil
}

// symbols are the names of a library's functions, by offset.
type symbols map[uint64]string

func functionsOf(library string) (symbols, error) {
	f, err := elf.Open(library)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.Symbols()
	s := symbols{}
	for _, x := range list {
		if elf.ST_TYPE(x.Info) == elf.STT_FUNC {
			s[x.Value] = x.Name
		}
	}
	return s, err
}

// suffixed matches what a compiler appends to the name of a copy of a function.
var suffixed = regexp.MustCompile(`\.(constprop|isra|part|cold)\..*$`)

// called returns the known functions at the offsets in a text. The loop device's function of an
// operation without a symbol of its own has the operation's name: next_poll is ibv_next_poll.
func (s symbols) called(text string, known map[string]bool) (all []string) {
	other := map[string]string{"req_notify": "ibv_req_notify_cq", "query_rt_values": "ibv_query_rt_values_ex"}
	for _, line := range strings.Fields(text) {
		at, err := strconv.ParseUint(line, 16, 64)
		if err != nil {
			continue
		}
		name := suffixed.ReplaceAllString(s[at], "")
		for _, n := range []string{name, strings.TrimPrefix(name, "_"), other[name], "ibv_" + name, "ibv_wc_" + name} {
			if known[n] && !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return all
}
