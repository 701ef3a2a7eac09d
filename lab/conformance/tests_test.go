package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestListedTestsExist: the tests that the lists of defects, bugs and seeds name exist.
func TestListedTestsExist(t *testing.T) {
	have := map[string]bool{}
	for _, dir := range []string{"../../udat", "../../udat/internal/memfabric", "../../udat/internal/verbsfabric",
		"../../udat/internal/verbsfabric/cm", "../../udat/internal/verbsfabric/soft", "../../cverbs", "../../cmd/libgodat",
		"../docs"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
				have[string(m[1])] = true
			}
		}
	}
	for page, atLeast := range map[string]int{"broken.md": 30, "dapl-defects.md": 50, "seeds.md": 50} {
		list, err := os.ReadFile("../../docs/conformance/" + page)
		assert.NilError(t, err)
		named := regexp.MustCompile(`Test[A-Z]\w*`).FindAllString(string(list), -1)
		if len(named) < atLeast {
			t.Errorf("%s names only %d tests", page, len(named))
		}
		for _, name := range named {
			if !have[name] {
				t.Errorf("%s names %s, which does not exist", page, name)
			}
		}
	}
}

// TestListedRulesExist: each rule that the page of the seeds names is in the list of rules. Each
// contradiction has its reading on the page.
func TestListedRulesExist(t *testing.T) {
	rules, err := readRules("../../docs/conformance/rules.tsv")
	assert.NilError(t, err)
	have := map[string]bool{}
	for _, r := range rules {
		have[r.id] = true
	}
	page, err := os.ReadFile("../../docs/conformance/seeds.md")
	assert.NilError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\| (C-\d+) \|`).FindAllSubmatch(page, -1) {
		have[string(m[1])] = true
	}
	named := regexp.MustCompile(`\b[A-Z]+(-[A-Z]+)*-\d+\b`).FindAllString(string(page), -1)
	assert.Assert(t, len(named) > 150, len(named))
	for _, id := range named {
		assert.Check(t, have[id], "seeds.md names %s, which has no meaning there or in rules.tsv", id)
	}
}

// TestProofsFollowAssertions: before each call of rule.Proves there is an assertion, in the same
// function and on the path to the call. No test proves a rule with a cause that the test itself
// makes up, or before it skips, because such a record never counts.
func TestProofsFollowAssertions(t *testing.T) {
	calls := 0
	for _, pattern := range []string{"../../udat/*_test.go", "../../udat/internal/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		assert.NilError(t, err)
		for _, file := range files {
			src, err := os.ReadFile(file)
			assert.NilError(t, err)
			n, bare := proofs(t, file, string(src))
			calls += n
			for _, b := range bare {
				t.Errorf("%s: no assertion stands before this proof, or its test makes up the cause, or skips after it", b)
			}
		}
	}
	assert.Assert(t, calls > 300, calls)

	_, bare := proofs(t, "bad_test.go", `package p
func TestA(t *testing.T) {
	rule.Proves(t, "A-1")
	assert.NilError(t, f())
}
func TestB(t *testing.T) {
	a := open(t, "mem0")
	if a.ok {
		assert.Equal(t, a.n, 1)
	} else {
		rule.Proves(t, "B-1")
	}
	rule.Proves(t, "B-2")
}
func TestC(t *testing.T) {
	a.ep.Suffer(1)
	assert.Equal(t, a.n, 1)
	rule.Proves(t, "C-1")
}
func TestD(t *testing.T) {
	assert.Equal(t, a.n, 1)
	rule.Proves(t, "D-1")
	if a.ok {
		rule.Proves(t, "D-2")
		t.Skip("no more")
	}
}
`)
	assert.Equal(t, strings.Join(bare, " "), "bad_test.go:3:2 bad_test.go:11:3 bad_test.go:18:2 bad_test.go:24:3")
}

// proofs counts the calls of rule.Proves in a file. It returns the places of the calls without an
// assertion before them, of those in tests that make up the cause, and of those before a skip.
func proofs(t *testing.T, file, src string) (n int, bare []string) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	assert.NilError(t, err)
	var path []ast.Node
	ast.Inspect(parsed, func(node ast.Node) bool {
		if node == nil {
			path = path[:len(path)-1]
			return true
		}
		path = append(path, node)
		if call, ok := node.(*ast.CallExpr); ok && calls(call, "rule", "Proves") {
			n++
			if !asserted(path) || makesUp(path) || skips(path) {
				bare = append(bare, fset.Position(node.Pos()).String())
			}
		}
		return true
	})
	return n, bare
}

// makesUp reports whether the test on the path creates events of the state machine by hand. Such a
// test proves nothing about what a fabric reports.
func makesUp(path []ast.Node) (found bool) {
	ast.Inspect(path[1], func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		found = found || ok && sel.Sel.Name == "Suffer"
		return !found
	})
	return found
}

// skips reports whether the statement after the last node of the path skips the test.
func skips(path []ast.Node) bool {
	block, ok := path[len(path)-3].(*ast.BlockStmt)
	if !ok {
		return false
	}
	next := slices.IndexFunc(block.List, func(s ast.Stmt) bool { return s == path[len(path)-2] }) + 1
	if next == len(block.List) {
		return false
	}
	statement, _ := block.List[next].(*ast.ExprStmt)
	if statement == nil {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	return ok && (calls(call, "t", "Skip") || calls(call, "t", "Skipf"))
}

// asserted reports whether a statement in the same function, before the last node of the path,
// makes an assertion.
func asserted(path []ast.Node) bool {
	for i := len(path) - 2; i >= 0; i-- {
		var list []ast.Stmt
		switch b := path[i].(type) {
		case *ast.BlockStmt:
			list = b.List
		case *ast.CaseClause:
			list = b.Body
		case *ast.CommClause:
			list = b.Body
		case *ast.FuncLit, *ast.FuncDecl:
			return false
		}
		for _, s := range list {
			if s == path[i+1] {
				break
			}
			if asserts(s) {
				return true
			}
		}
	}
	return false
}

func asserts(s ast.Stmt) (found bool) {
	ast.Inspect(s, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return !found
		}
		switch f := call.Fun.(type) {
		case *ast.Ident: // a helper that asserts takes the test first; one that opens something does not count
			if len(call.Args) > 0 {
				arg, ok := call.Args[0].(*ast.Ident)
				found = found || ok && arg.Name == "t" && !slices.Contains(openers, f.Name)
			}
		case *ast.SelectorExpr:
			found = found || calls(call, "assert", "") ||
				slices.Contains([]string{"Fatal", "Fatalf", "Error", "Errorf"}, f.Sel.Name)
			if len(call.Args) > 0 && !calls(call, "rule", "") {
				arg, ok := call.Args[0].(*ast.Ident)
				found = found || ok && arg.Name == "t"
			}
		}
		return !found
	})
	return found
}

// openers lists helpers that only set up.
var openers = []string{"open", "newPair", "newSide", "onEach"}

func calls(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg && (name == "" || sel.Sel.Name == name)
}
