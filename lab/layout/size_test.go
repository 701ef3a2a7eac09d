package layout

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var updateSize = flag.Bool("update", false, "write docs/size.md")

// shipped is what a user builds: the two packages, the binding, the program and the C library.
var shipped = []string{"./rdmanet", "./udat", "./cverbs", "./cmd/datperf", "./cmd/libgodat"}

const sizePage = "docs/size.md"

// TestSize: what ships has at most as many lines as docs/size.md says. It may have fewer, so that a
// change that removes lines need not touch the page.
func TestSize(t *testing.T) {
	t.Chdir("../..")
	rows, sum := sizes(t)
	if *updateSize {
		if err := os.WriteFile(sizePage, []byte(sizeText(rows, sum)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(sizePage)
	if err != nil {
		t.Fatal(err)
	}
	total := regexp.MustCompile(`\| \*\*all\*\* \| *\d+ \| *\d+ \| *(\d+) \|`).FindSubmatch(page)
	if total == nil {
		t.Fatalf("%s has no row of the sum: make size", sizePage)
	}
	if limit, _ := strconv.Atoi(string(total[1])); sum.golang+sum.c > limit {
		t.Errorf("%d lines ship, and %s says %d: remove lines, or run make size and give the reason in the commit",
			sum.golang+sum.c, sizePage, limit)
	}
}

// size is the number of lines of a package.
type size struct {
	name      string
	golang, c int
}

// sizes counts the lines of the packages of this module that ship, as they are built on Linux with
// cgo.
func sizes(t *testing.T) (rows []size, sum size) {
	t.Helper()
	files := "{{with .Module}}{{if .Main}}{{$.Dir}}" +
		"{{range $.GoFiles}} {{.}}{{end}}{{range $.CgoFiles}} {{.}}{{end}}" +
		"{{range $.CFiles}} {{.}}{{end}}{{range $.HFiles}} {{.}}{{end}}{{end}}{{end}}"
	list := exec.Command("go", append([]string{"list", "-deps", "-tags", "dat2", "-f", files}, shipped...)...)
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=1")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	sum.name = "**all**"
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		row := size{}
		if row.name, err = filepath.Rel(root, fields[0]); err != nil {
			t.Fatal(err)
		}
		for _, file := range fields[1:] {
			text, err := os.ReadFile(filepath.Join(fields[0], file))
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.Count(text, []byte("\n"))
			if strings.HasSuffix(file, ".go") {
				row.golang += lines
			} else {
				row.c += lines
			}
		}
		rows = append(rows, row)
		sum.golang += row.golang
		sum.c += row.c
	}
	return rows, sum
}

func sizeText(rows []size, sum size) string {
	var b strings.Builder
	b.WriteString("# What ships, in lines\n\n" +
		"The files of `rdmanet`, `udat`, `cverbs`, `datperf` and `libgodat` and of what they import from this\n" +
		"module, in the order of the imports, as they are built on Linux: Go and C, with comments and empty\n" +
		"lines, without tests. `make size` writes this page. A test fails if more lines ship than it says.\n\n" +
		"| Package | Go | C | Together |\n|---|--:|--:|--:|\n")
	for _, row := range append(rows, sum) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", row.name, row.golang, row.c, row.golang+row.c)
	}
	return b.String()
}
