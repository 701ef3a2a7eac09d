package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// binding is what the sources of cverbs say about the functions and types that they bind.
type binding struct {
	goNames map[string][]string // Go names of a C function, from "Implements:" in doc comments: "(*QP).Modify"
	goTypes map[string]string   // Go type of an enumeration, from "with the values of enum" in comments
	makers  map[string][]string // functions that return a pointer to a type, by the name of the type
	tests   map[string]*source  // tests and their helpers, by name
	calls   traced              // what the tests call on the loop device
}

// source is a test or a helper of tests, with the names that it uses.
type source struct {
	name string
	uses map[string]bool
}

var (
	implements    = regexp.MustCompile(`Implements: ([\w, ]+)\.`)
	pointerMethod = regexp.MustCompile(`^\(\*(\w+)\)`)
	valuesOf      = regexp.MustCompile(`with the values of enum (\w+)`)
)

func readBinding(dir string) (*binding, error) {
	b := &binding{goNames: map[string][]string{}, goTypes: map[string]string{},
		makers: map[string][]string{}, tests: map[string]*source{}}
	fset := token.NewFileSet()
	parsed, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(parsed) == 0 {
		return nil, cmp.Or(err, error(&fs.PathError{Op: "read", Path: dir, Err: fs.ErrNotExist}))
	}
	for _, name := range parsed {
		if filepath.Base(name) == "stub.go" {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if strings.HasSuffix(name, "_test.go") {
					s := &source{d.Name.Name, usedBy(d)}
					b.tests[s.name] = s
				} else {
					b.function(d)
				}
			case *ast.GenDecl:
				b.constants(d)
			}
		}
	}
	return b, nil
}

// usedBy returns all identifiers in a piece of a source.
func usedBy(n ast.Node) map[string]bool {
	all := map[string]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			all[id.Name] = true
		}
		return true
	})
	return all
}

func (b *binding) function(d *ast.FuncDecl) {
	if d.Type.Results != nil && d.Name.IsExported() {
		for _, r := range d.Type.Results.List {
			if p, ok := r.Type.(*ast.StarExpr); ok {
				if t, ok := p.X.(*ast.Ident); ok {
					b.makers[t.Name] = append(b.makers[t.Name], d.Name.Name)
				}
			}
		}
	}
	m := implements.FindStringSubmatch(strings.Join(strings.Fields(d.Doc.Text()), " "))
	if m == nil {
		return
	}
	name := d.Name.Name
	if d.Recv != nil {
		switch t := d.Recv.List[0].Type.(type) {
		case *ast.StarExpr:
			name = "(*" + t.X.(*ast.Ident).Name + ")." + name
		case *ast.Ident:
			name = t.Name + "." + name
		}
	}
	for _, c := range strings.Split(m[1], ", ") {
		b.goNames[c] = append(b.goNames[c], name)
	}
}

func (b *binding) constants(d *ast.GenDecl) {
	m := valuesOf.FindStringSubmatch(strings.Join(strings.Fields(d.Doc.Text()), " "))
	if m == nil || d.Tok != token.CONST {
		return
	}
	if t, ok := d.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident); ok {
		b.goTypes[m[1]] = t.Name
	}
}

// testOf returns a test that calls a function, or "" if no test does. If tests have called the
// function on the loop device, it is one of these, and if possible one that uses the function's Go
// name itself. Otherwise the test uses the Go name, directly or through helpers. testOf prefers the
// test that has passed on the most devices, and among equals the test that uses the fewest
// functions or names. It ignores tests that have a note, because they provoke errors.
func (b *binding) testOf(function, goName string, notes map[string]noted, seen map[string][]string) string {
	best, least := "", 0
	callers := b.calls.tests(function)
	for _, loose := range []bool{false, true} {
		for _, name := range slices.Sorted(maps.Keys(b.tests)) {
			n := b.uses(name, goName)
			if callers != nil && slices.Contains(callers, name) && (n > 0 || loose) {
				n = len(b.calls[name])
			} else if callers != nil {
				n = 0
			}
			if _, only := notes[name]; only || n == 0 || !strings.HasPrefix(name, "Test") {
				continue
			}
			more := len(seen[name]) - len(seen[best])
			if best == "" || more > 0 || more == 0 && n < least {
				best, least = name, n
			}
		}
		if best != "" {
			break
		}
	}
	return best
}

// uses returns how many names a test uses, directly or through helpers. It returns 0 if goName is
// not among these names. If goName is a method of a pointer, uses also returns 0 unless the test
// uses the pointer's type, or a function that returns such a pointer.
func (b *binding) uses(test, goName string) int {
	all := map[string]bool{}
	b.reach(test, all)
	if !all[goName[strings.LastIndex(goName, ".")+1:]] {
		return 0
	}
	if m := pointerMethod.FindStringSubmatch(goName); m != nil && !all[m[1]] &&
		!slices.ContainsFunc(b.makers[m[1]], func(maker string) bool { return all[maker] }) {
		return 0
	}
	return len(all)
}

// reach adds the names that a test or a helper uses, directly or through helpers, to the set all.
func (b *binding) reach(name string, all map[string]bool) {
	s := b.tests[name]
	if s == nil {
		return
	}
	for used := range s.uses {
		if !all[used] {
			all[used] = true
			b.reach(used, all)
		}
	}
}
