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

// TestDefectsHaveTests: the tests that the list of defects names exist.
func TestDefectsHaveTests(t *testing.T) {
	list, err := os.ReadFile("../../docs/conformance/dapl-defects.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, dir := range []string{"../../udat", "../../udat/internal/verbsfabric"} {
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
	named := regexp.MustCompile(`Test[A-Z]\w*`).FindAllString(string(list), -1)
	if len(named) < 50 {
		t.Errorf("the list names only %d tests", len(named))
	}
	for _, name := range named {
		if !have[name] {
			t.Errorf("the list names %s, which does not exist", name)
		}
	}
}

// TestProofsFollowAssertions: before each rule.Proves, in its function and on the way to it, stands
// an assertion.
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
				t.Errorf("%s: no assertion stands before this proof", b)
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
`)
	assert.Equal(t, strings.Join(bare, " "), "bad_test.go:3:2 bad_test.go:11:3")
}

// proofs counts the calls of rule.Proves in a file and returns the places of those without an
// assertion before them.
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
			if !asserted(path) {
				bare = append(bare, fset.Position(node.Pos()).String())
			}
		}
		return true
	})
	return n, bare
}

// asserted reports whether a statement before the last node of the path, in its function, makes an
// assertion.
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

// openers are helpers that only set up.
var openers = []string{"open", "newPair", "newSide", "onEach"}

func calls(call *ast.CallExpr, pkg, name string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == pkg && (name == "" || sel.Sel.Name == name)
}
