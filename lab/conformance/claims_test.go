package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestTableIsOfToday: the rules that the tests claim to prove and the rules that the table shows as
// proven by them agree, both ways. After adding or renaming a test, run `make conformance`.
func TestTableIsOfToday(t *testing.T) {
	files, err := filepath.Glob("../../udat/*_test.go")
	assert.NilError(t, err)
	rules, err := readRules("../../docs/conformance/rules.tsv")
	assert.NilError(t, err)
	table, err := readTable("../../docs/conformance/table.md")
	assert.NilError(t, err)
	cited := map[string]map[string]bool{}
	n := 0
	for id, p := range table {
		cited[id] = map[string]bool{}
		for _, tests := range p {
			maps.Copy(cited[id], tests)
		}
		n += len(cited[id])
	}
	assert.Assert(t, n > 1000, n)
	for _, d := range disagreements(readClaims(t, rules, files, nil), cited) {
		t.Error(d)
	}
}

// TestDisagreements: disagreements are found: a claim by a test, or by code that only other tests
// use; a citation of a test that claims another rule; and a citation of a test that does not exist.
func TestDisagreements(t *testing.T) {
	rules := []ruleLine{{id: "A-1"}, {id: "A-2"}, {id: "B-1"}, {id: "B-2"}, {id: "B-3"}}
	c := readClaims(t, rules, []string{"x_test.go"}, `package p
var table = []string{"A-2"}
type w struct{}
func (w) play() { shows("B-1 B-2") }
func TestA(t *testing.T) {
	rule.Proves(t, "A-1")
	for _, r := range table { rule.Proves(t, r) }
}
func TestB(t *testing.T) { t.Run("x", func(t *testing.T) { w{}.play() }) }
func TestModel(t *testing.T) { shows("B-3") }
`)
	cite := func(list string) map[string]map[string]bool {
		cited := map[string]map[string]bool{}
		for _, f := range strings.Fields(list) {
			id, test, _ := strings.Cut(f, ":")
			if cited[id] == nil {
				cited[id] = map[string]bool{}
			}
			cited[id][test] = true
		}
		return cited
	}
	for _, x := range []struct{ cited, want string }{
		{"A-1:TestA A-2:TestA B-1:TestB B-2:TestB", ""},
		{"A-1:TestA A-2:TestA B-1:TestB B-2:TestB B-3:TestModel", ""},
		{"A-1:TestA A-2:TestA B-1:TestB", "x_test.go:4: the table does not have this proof of B-2"},
		{"A-2:TestA B-1:TestB B-2:TestB", "x_test.go:6: the table does not have this proof of A-1"},
		{"A-1:TestA A-1:TestB A-2:TestA B-1:TestB B-2:TestB", "the table has TestB for A-1, which it does not claim"},
		{"A-1:TestA A-2:TestA A-2:TestC B-1:TestB B-2:TestB", "the table has TestC for A-2, which it does not claim"},
	} {
		assert.Equal(t, strings.Join(disagreements(c, cite(x.cited)), "\n"), x.want)
	}
}

// claims lists the places in a package's tests that name rules: each rule, and the tests from which
// the place can be reached. Names are not resolved: a function is assumed to reach everything that
// has a name that it uses.
type claims []claim

type claim struct {
	rule, place string
	tests       map[string]bool
}

func readClaims(t *testing.T, rules []ruleLine, files []string, src any) (found claims) {
	known := map[string]bool{}
	for _, r := range rules {
		known[r.id] = true
	}
	type part struct {
		name string
		node ast.Node
	}
	var parts []part
	byName := map[string][]int{}
	fset := token.NewFileSet()
	add := func(name string, node ast.Node) {
		byName[name] = append(byName[name], len(parts))
		parts = append(parts, part{name, node})
	}
	for _, path := range files {
		file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		assert.NilError(t, err)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				add(d.Name.Name, d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, name := range v.Names {
							add(name.Name, v)
						}
					}
				}
			}
		}
	}
	uses, named := make([]map[string]bool, len(parts)), make([]claims, len(parts))
	for i, p := range parts {
		uses[i] = map[string]bool{}
		ast.Inspect(p.node, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				uses[i][n.Name] = true
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				ids := strings.Fields(text)
				if n.Kind != token.STRING || err != nil || slices.ContainsFunc(ids, func(id string) bool { return !known[id] }) {
					break
				}
				pos := fset.Position(n.Pos())
				for _, id := range ids {
					place := filepath.Base(pos.Filename) + ":" + strconv.Itoa(pos.Line)
					named[i] = append(named[i], claim{id, place, map[string]bool{}})
				}
			}
			return true
		})
	}
	for _, p := range parts {
		if !strings.HasPrefix(p.name, "Test") {
			continue
		}
		seen := map[int]bool{}
		for todo := slices.Clone(byName[p.name]); len(todo) > 0; {
			i := todo[0]
			todo = todo[1:]
			if seen[i] {
				continue
			}
			seen[i] = true
			for _, c := range named[i] {
				c.tests[p.name] = true
			}
			for name := range uses[i] {
				todo = append(todo, byName[name]...)
			}
		}
	}
	return slices.Concat(named...)
}

// disagreements compares claims with the tests that a table cites for each rule. TestModel meets
// its rules only at run time, so the table need not have all of them.
func disagreements(c claims, cited map[string]map[string]bool) (list []string) {
	claimed := map[string]map[string]bool{}
	for _, c := range c {
		if claimed[c.rule] == nil {
			claimed[c.rule] = map[string]bool{}
		}
		shown := false
		for test := range c.tests {
			claimed[c.rule][test] = true
			shown = shown || cited[c.rule][test]
		}
		if !shown && !c.tests["TestModel"] {
			list = append(list, c.place+": the table does not have this proof of "+c.rule)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(cited)) {
		for _, test := range slices.Sorted(maps.Keys(cited[id])) {
			if !claimed[id][test] {
				list = append(list, "the table has "+test+" for "+id+", which it does not claim")
			}
		}
	}
	return list
}
