package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"hash/fnv"
	"slices"
	"strings"
)

// Mutant is one change of a source file.
type Mutant struct {
	File  string // below the directory of package udat
	Func  string // the function or the variable that it is in
	Line  int
	Start int // the bytes that New replaces
	End   int
	Old   string
	New   string
	Nth   int    // among equal changes in the same function, from 1
	Hole  string // the bug that a line of holes.tsv stands for, or ""
}

// key names a mutant as long as its function does not change: file, function, change.
type key [3]string

func (m Mutant) key() key { return key{m.File, m.Func, m.What()} }

func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s", m.File, m.Line, m.Func, m.What())
}

// What describes the change, without its place.
func (m Mutant) What() string {
	if m.Hole != "" {
		return "hole: " + m.Hole
	}
	s := fmt.Sprintf("%s => %s", brief(m.Old), brief(m.New))
	if m.Nth > 1 {
		s += fmt.Sprintf(" #%d", m.Nth)
	}
	return s
}

// brief is code on one line.
func brief(code string) string {
	code = strings.Join(strings.Fields(code), " ")
	if code == "" {
		return "(nothing)"
	}
	if r := []rune(code); len(r) > 100 {
		code = string(r[:60]) + " ... " + string(r[len(r)-35:])
	}
	return code
}

// Apply returns the source with the change made.
func (m Mutant) Apply(src []byte) []byte {
	return slices.Concat(src[:m.Start], []byte(m.New), src[m.End:])
}

// inSample reports whether the fixed sample has the mutant: holes always, others by a hash of what
// they are, so that an edit of one function does not change the sample of another.
func (m Mutant) inSample(seed uint64, perMille int) bool {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\n%s\n%s\n%s", seed, m.File, m.Func, m.What())
	x := h.Sum64()
	return m.Hole != "" || int((x^x>>32)%1000) < perMille
}

// generator collects the mutants of one file.
type generator struct {
	file    string
	src     []byte
	fset    *token.FileSet
	info    *types.Info
	pkg     *types.Package
	in      string            // the present function
	giveErr bool              // which returns an error last
	beside  map[ast.Node]bool // numbers that are returned with an error: results of a call that fails are undefined
	mutants []Mutant
}

// Mutants returns the mutants of a file, in the order of their places.
func Mutants(file string, s *source) []Mutant {
	g := &generator{file: file, src: s.text, fset: s.fset, info: s.info, pkg: s.pkg, beside: map[ast.Node]bool{}}
	for _, d := range s.parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			g.in, g.giveErr = d.Name.Name, givesError(d.Type)
			if d.Body != nil {
				ast.Inspect(d.Body, g.visit)
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				g.tables(d)
			}
		}
	}
	slices.SortStableFunc(g.mutants, func(a, b Mutant) int { return a.Start - b.Start })
	repeated := map[string]int{}
	for i := range g.mutants {
		m := &g.mutants[i]
		k := m.Func + "\n" + m.Old + "\n" + m.New
		repeated[k]++
		m.Nth = repeated[k]
	}
	return g.mutants
}

func givesError(f *ast.FuncType) bool {
	if f.Results == nil {
		return false
	}
	last := f.Results.List[len(f.Results.List)-1]
	id, ok := last.Type.(*ast.Ident)
	return ok && id.Name == "error"
}

func (g *generator) offset(p token.Pos) int { return g.fset.Position(p).Offset }

func (g *generator) text(n ast.Node) string {
	return string(g.src[g.offset(n.Pos()):g.offset(n.End())])
}

func (g *generator) add(n ast.Node, with string) { g.replace(n.Pos(), n.End(), with) }

func (g *generator) replace(from, to token.Pos, with string) {
	start, end := g.offset(from), g.offset(to)
	if old := string(g.src[start:end]); old != with {
		g.mutants = append(g.mutants,
			Mutant{File: g.file, Func: g.in, Line: g.fset.Position(from).Line, Start: start, End: end, Old: old, New: with})
	}
}
