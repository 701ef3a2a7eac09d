// Package layout checks that the files of each package refer to each other in one direction, and
// that the tests of each package check for leaks.
package layout

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// largest maps each package with a circle of files to the number of files in its largest circle.
// A change may only lower these numbers. The goal is 4 or less.
var largest = map[string]int{
	"cmd/libgodat":            2,
	"internal/perf/engine":    2,
	"internal/perf/report":    2,
	"internal/perf/result":    2,
	"rdmanet":                 2,
	"udat/internal/tcpfabric": 3,
}

// TestCircles: the files of a package refer to each other in one direction only, so that a
// reader can understand a file without the files that refer to it. The types of struct fields do
// not count, because the objects of DAT point to each other.
func TestCircles(t *testing.T) {
	t.Chdir("../..")
	out, err := exec.Command("go", "list", "-tags", "dat2", "-f", "{{.Dir}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", exports(t))
	for _, dir := range strings.Fields(string(out)) {
		name, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		uses := references(t, fset, imports, dir)
		circle := largestCircle(uses)
		switch limit := max(largest[name], 1); {
		case len(circle) > limit:
			t.Errorf("%s: %d files refer to each other in a circle, at most %d may:\n%s", name, len(circle), limit,
				describe(circle, uses))
		case len(circle) < limit:
			t.Errorf("%s: its largest circle has %d files, and the table says %d: enter the smaller figure", name,
				len(circle), limit)
		}
	}
}

// exports returns what opens the export data of a package, which the compiler has written. The
// package of the C library has none where the headers of libdat2 are missing: nothing imports it.
func exports(t *testing.T) importer.Lookup {
	t.Helper()
	out, err := exec.Command("go", "list", "-e", "-export", "-deps", "-tags", "dat2", "-f", "{{.ImportPath}} {{.Export}}",
		"./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// TestLargestCircle: files form a circle if each refers to all others, directly or through some of
// them.
func TestLargestCircle(t *testing.T) {
	to := func(files ...string) map[string]string {
		uses := map[string]string{}
		for _, f := range files {
			uses[f] = "name"
		}
		return uses
	}
	uses := map[string]map[string]string{"a": to("b"), "b": to("c", "d"), "c": to("b"), "d": to("e"), "e": to("f"),
		"f": to("d"), "g": to("a", "f")}
	if circle := largestCircle(uses); !slices.Equal(circle, []string{"d", "e", "f"}) {
		t.Error(circle)
	}
	uses["f"] = to()
	if circle := largestCircle(uses); !slices.Equal(circle, []string{"b", "c"}) {
		t.Error(circle)
	}
}

// largestCircle returns the files of the largest circle, or one file if there is no circle.
func largestCircle(uses map[string]map[string]string) (circle []string) {
	below := map[string]map[string]bool{} // what a file needs
	for file := range uses {
		needs := map[string]bool{}
		var add func(file string)
		add = func(file string) {
			for to := range uses[file] {
				if !needs[to] {
					needs[to] = true
					add(to)
				}
			}
		}
		add(file)
		below[file] = needs
	}
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		tied := []string{file}
		for to := range below[file] {
			if to != file && below[to][file] {
				tied = append(tied, to)
			}
		}
		if len(tied) > len(circle) {
			slices.Sort(tied)
			circle = tied
		}
	}
	return circle
}

// describe lists the references within a circle.
func describe(circle []string, uses map[string]map[string]string) string {
	var lines []string
	for _, from := range circle {
		for _, to := range circle {
			if name := uses[from][to]; name != "" {
				lines = append(lines, fmt.Sprintf("%s -> %s: %s", from, to, name))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// references returns for each file of the package in dir the files to which it refers, each with
// one of the names that it uses.
func references(t *testing.T, fset *token.FileSet, imports types.Importer, dir string) map[string]map[string]string {
	t.Helper()
	context := build.Default
	context.GOOS, context.CgoEnabled, context.BuildTags = "linux", true, []string{"dat2"}
	p, err := context.ImportDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports, FakeImportC: true, Error: func(err error) {
		if len(p.CgoFiles) == 0 { // else it may be a value of C, which has no type here
			t.Error(err)
		}
	}}
	pkg, _ := config.Check(p.ImportPath, fset, files, &info)
	uses := map[string]map[string]string{}
	for _, f := range files {
		from := filepath.Base(fset.Position(f.Pos()).Filename)
		uses[from] = map[string]string{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				return false
			case *ast.Ident:
				o := info.Uses[n]
				if v, ok := o.(*types.Var); o == nil || o.Pkg() != pkg || ok && v.IsField() {
					return true
				}
				if to := filepath.Base(fset.Position(o.Pos()).Filename); to != from {
					uses[from][to] = o.Name()
				}
			}
			return true
		})
	}
	return uses
}
