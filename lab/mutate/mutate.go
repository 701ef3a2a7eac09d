package main

import (
	"fmt"
	"go/ast"
	"go/scanner"
	"go/token"
	"go/types"
	"hash/fnv"
	"slices"
	"strings"
)

// Mutant is one change of a source file.
type Mutant struct {
	File  string // path below the root
	Func  string // function with its receiver's type, or variable or constant, that contains the change
	Line  int
	Start int // New replaces the bytes from Start to End
	End   int
	Old   string
	New   string
	Nth   int    // number of this change among equal ones in functions of the same name, from 1
	Alone bool   // the mutant needs its own program, because it cannot be a copy in the common program
	Diff  string // the code with the change, in as many lines as make it unique in its function
	Hole  string // the bug, if the mutant is a line of holes.tsv; otherwise ""
}

// key identifies a mutant by its content: file, function, and code with the change in it. The key
// stays the same until that code changes.
type key [3]string

func (m Mutant) key() key {
	if m.Hole != "" {
		return key{m.File, m.Func, m.What()}
	}
	return key{m.File, m.Func, m.Diff}
}

func (m Mutant) keys() []string { k := m.key(); return k[:] }

func (m Mutant) String() string {
	return fmt.Sprintf("%s:%d %s: %s", m.File, m.Line, m.Func, m.What())
}

// What returns a description of the change, without file and line.
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

// brief returns code on one line, shortened to 100 characters.
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

// Apply returns the source with the change.
func (m Mutant) Apply(src []byte) []byte {
	return slices.Concat(src[:m.Start], []byte(m.New), src[m.End:])
}

// hash returns a number below 1000 << 32 that depends on the seed and on the mutant's content.
func (m Mutant) hash(seed uint64) uint64 {
	h := fnv.New64a()
	name := m.Func[strings.LastIndex(m.Func, ".")+1:]
	fmt.Fprintf(h, "%d\n%s\n%s\n%s", seed, strings.TrimPrefix(m.File, "udat/"), name, m.What())
	x := h.Sum64()
	return (x^x>>32)%1000<<32 | x>>32
}

// leastPerFile is the least number of mutants of each file in the sample.
const leastPerFile = 2

// sampled returns the fixed sample. It contains all mutants made by hand. Of the other mutants it
// contains those with the lowest hashes, and from each file at least leastPerFile mutants. So an
// edit of one function does not change the sample of another function.
func sampled(list []Mutant, seed uint64, perMille int) []Mutant {
	first := map[string][]uint64{} // by file
	for _, m := range list {
		if m.Hole == "" {
			first[m.File] = append(first[m.File], m.hash(seed))
		}
	}
	for file, of := range first {
		slices.Sort(of)
		first[file] = of[:min(len(of), leastPerFile)]
	}
	return slices.DeleteFunc(list, func(m Mutant) bool {
		h := m.hash(seed)
		return m.Hole == "" && h >= uint64(perMille)<<32 && !slices.Contains(first[m.File], h)
	})
}

// generator collects the mutants of one file.
type generator struct {
	file      string
	src       []byte
	code      string // src with its comments replaced by spaces
	fset      *token.FileSet
	info      *types.Info
	pkg       *types.Package
	in        string            // name of the function, variable or constant being mutated
	within    ast.Node          // node of that function, variable or constant
	alone     bool              // mutants of that node need their own programs
	giveErr   bool              // the function being mutated returns an error last
	withError map[ast.Node]bool // results before an error: not mutated, because the results of a failed call are undefined
	mutants   []Mutant
}

// Mutants returns the mutants of a file, in the order of their positions.
func Mutants(file string, s *source) []Mutant {
	if s.parsed == nil {
		return numbered(cMutants(file, string(s.text)))
	}
	g := &generator{file: file, src: s.text, code: withoutComments(s.text), fset: s.fset, info: s.info, pkg: s.pkg,
		withError: map[ast.Node]bool{}}
	for _, d := range s.parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			g.in, g.within, g.giveErr = nameOf(d), d, givesError(d.Type)
			if d.Body != nil {
				ast.Inspect(d.Body, g.visit)
			}
		case *ast.GenDecl:
			g.declaration(d)
		}
	}
	slices.SortStableFunc(g.mutants, func(a, b Mutant) int { return a.Start - b.Start })
	return numbered(g.mutants)
}

// numbered sets Nth, which distinguishes equal changes in functions of the same name.
func numbered(list []Mutant) []Mutant {
	repeated := map[string]int{}
	for i := range list {
		m := &list[i]
		k := m.Func[strings.LastIndex(m.Func, ".")+1:] + "\n" + m.Old + "\n" + m.New
		repeated[k]++
		m.Nth = repeated[k]
	}
	return list
}

// nameOf returns the name of a function, with its receiver's type.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
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
		g.mutants = append(g.mutants, Mutant{
			File: g.file, Func: g.in, Line: g.fset.Position(from).Line, Start: start, End: end, Old: old, New: with,
			Alone: g.alone, Diff: diff(g.code, g.offset(g.within.Pos()), g.offset(g.within.End()), start, end, with),
		})
	}
}

// withoutComments returns Go code in which spaces replace the comments. So a mutant keeps its key
// if a comment next to it changes.
func withoutComments(src []byte) string {
	code := slices.Clone(src)
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, func(token.Position, string) {}, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			return string(code)
		}
		for i := 0; tok == token.COMMENT && i < len(text); i++ {
			if at := file.Offset(pos) + i; code[at] != '\n' {
				code[at] = ' '
			}
		}
	}
}

// diff returns the lines that contain a change, with the change written as [-old-]{+new+}. The
// change replaces src[start:end] by replacement. If these lines occur more than once in
// src[low:high], diff also returns lines before them, as many as are needed to make the returned
// text unique.
func diff(src string, low, high, start, end int, replacement string) string {
	lineStart := func(at int) int { return max(low, strings.LastIndexByte(src[:at], '\n')+1) }
	from, to := lineStart(start), high
	if i := strings.IndexByte(src[end:high], '\n'); i >= 0 {
		to = end + i
	}
	all := lines(src[low:high])
	for from > low && count(all, lines(src[from:to])) > 1 {
		from = lineStart(from - 1)
	}
	change := ""
	if start < end {
		change = "[-" + src[start:end] + "-]"
	}
	if replacement != "" {
		change += "{+" + replacement + "+}"
	}
	return strings.Join(strings.Fields(src[from:start]+change+src[end:to]), " ")
}

// lines returns the lines of a text, with each run of white space replaced by one space.
func lines(text string) []string {
	list := strings.Split(text, "\n")
	for i := range list {
		list[i] = strings.Join(strings.Fields(list[i]), " ")
	}
	return list
}

// count returns how often part occurs in list.
func count(list, part []string) (n int) {
	for i := range len(list) - len(part) + 1 {
		if slices.Equal(list[i:i+len(part)], part) {
			n++
		}
	}
	return n
}
