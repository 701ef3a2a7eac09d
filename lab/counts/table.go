package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// row contains the instructions, system calls and allocations of one operation of one layer, on
// average.
type row struct {
	layer, operation           string
	instructions, calls, alloc float64
}

func (r row) key() string { return r.layer + " " + r.operation }

const header = "layer\toperation\tinstructions\tsystem calls\tallocations\n"

func table(rows []row) string {
	var b strings.Builder
	b.WriteString(header)
	for _, r := range rows {
		fmt.Fprintf(&b, "%s\t%s\t%.0f\t%g\t%g\n", r.layer, r.operation, r.instructions, r.calls, r.alloc)
	}
	return b.String()
}

func parse(text string) (rows []row, err error) {
	text, ok := strings.CutPrefix(text, header)
	if !ok {
		return nil, fmt.Errorf("counts.tsv begins with another line than %q", header)
	}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("counts.tsv: not five columns: %q", line)
		}
		r := row{layer: f[0], operation: f[1]}
		for i, to := range []*float64{&r.instructions, &r.calls, &r.alloc} {
			if *to, err = strconv.ParseFloat(f[2+i], 64); err != nil {
				return nil, fmt.Errorf("counts.tsv: %w", err)
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// tolerance returns by how much a count may exceed the table. The result share is for instructions,
// as a fraction of the count in the table. The result calls is for system calls, as a number. Two
// operations vary more, because Go's allocator and scheduler do not behave the same in each run: an
// accept allocates, and in a round trip over a socket two goroutines wait for each other.
func (r row) tolerance() (share, calls float64) {
	switch r.key() {
	case "udat accept":
		return 0.4, 0.5
	case "tcp round trip":
		return 0.1, 2
	}
	return 0.03, 0.5
}

// peer reports whether the row is of C code or of Go's net package, and not of godat. Such a row is
// printed for comparison and not judged, because the compiler, the library and the load of the
// machine determine its figures.
func (r row) peer() bool { return r.layer == "C" || r.layer == "TCP" }

// worse says which figure of r exceeds the one in the table by more than the tolerance, or returns
// "". Allocations are those of the whole process. So other code may add to them: worse allows
// twice the count of the table plus one allocation in 16 operations.
func (r row) worse(was row) string {
	share, calls := r.tolerance()
	switch {
	case r.peer():
		return ""
	case r.instructions > math.Ceil(was.instructions*(1+share)):
		return fmt.Sprintf("%s takes %.0f instructions, %.0f before", r.key(), r.instructions, was.instructions)
	case r.calls >= was.calls+calls:
		return fmt.Sprintf("%s makes %g system calls, %g before", r.key(), r.calls, was.calls)
	case r.alloc > 2*was.alloc+0.07: // allocations of the whole process
		return fmt.Sprintf("%s allocates %g times, %g before", r.key(), r.alloc, was.alloc)
	}
	return ""
}

func here() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

func file() string { return filepath.Join(here(), "counts.tsv") }

func readTable() ([]row, error) {
	text, err := os.ReadFile(file())
	if err != nil {
		return nil, err
	}
	return parse(string(text))
}
