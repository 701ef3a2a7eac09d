// Package layout checks the order of the files of package udat.
package layout

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoCircles: code in the files of package udat refers in one direction only, so that a reader
// needs no other file to understand those below. What the fields of a struct are made of does not
// count: the objects of DAT point to each other.
func TestNoCircles(t *testing.T) {
	os.Setenv("CGO_ENABLED", "0")
	build.Default.CgoEnabled = false
	t.Chdir("../../udat")
	uses := references(t, ".")
	var path []string
	done := map[string]bool{}
	var visit func(file string) bool
	visit = func(file string) bool {
		if i := slices.Index(path, file); i >= 0 {
			var why []string
			circle := append(path[i:], file)
			for i := range circle[1:] {
				why = append(why, fmt.Sprintf("%s -> %s: %s", circle[i], circle[i+1], uses[circle[i]][circle[i+1]]))
			}
			t.Errorf("a circle of files:\n%s", strings.Join(why, "\n"))
			return false
		}
		if done[file] {
			return true
		}
		path = append(path, file)
		for _, to := range slices.Sorted(maps.Keys(uses[file])) {
			if !visit(to) {
				return false
			}
		}
		path = path[:len(path)-1]
		done[file] = true
		return true
	}
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		if !visit(file) {
			return
		}
	}
}

// references lists for each file of the package in dir the files that it refers to, with one name
// of each.
func references(t *testing.T, dir string) map[string]map[string]string {
	t.Helper()
	p, err := build.ImportDir(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	pkg, err := config.Check(p.ImportPath, fset, files, &info)
	if err != nil {
		t.Fatal(err)
	}
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
