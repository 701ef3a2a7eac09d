package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// All mutants that do not need their own program are built into one program, because building a
// program takes longer than testing it. An environment variable selects the mutant. A function gets
// a copy for each of its mutants, and begins with a switch that calls the selected copy. A table
// becomes a function that returns the selected copy.

// mutantEnv is the environment variable with the number of the mutant to test. Without it the tests
// run on the unbroken code.
const mutantEnv = "GODAT_MUTANT"

// If the variable mutantEnv has the value of the constant reaching, no mutant runs. Instead, each
// function that is called writes the numbers of its mutants to the file that reachedEnv names.
const (
	reaching   = -1
	reachedEnv = "GODAT_MUTANT_REACHED"
)

// chooser is the source of a file that is added to each mutated package.
const chooser = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var mutantChosen = func() int { n, _ := strconv.Atoi(os.Getenv("` + mutantEnv + `")); return n }()

var mutantFile = func() *os.File {
	if mutantChosen >= 0 {
		return nil
	}
	file, err := os.OpenFile(os.Getenv("` + reachedEnv + `"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		panic(err)
	}
	return file
}()

var mutantsReached [1 << 16]atomic.Bool

func mutantReached(numbers ...int) { // allocates for new ones only
	for _, n := range numbers {
		if !mutantsReached[n].Load() && !mutantsReached[n].Swap(true) {
			mutantFile.WriteString(strconv.Itoa(n) + "\n")
		}
	}
}
`

// copied says which lines of a generated file belong to one mutant.
type copied struct{ number, from, to int }

// edit replaces the source's bytes [from:end] by the text in the field with.
type edit struct {
	from, end int
	with      string
}

// schemer generates a file that contains all mutants of one source file.
type schemer struct {
	s       *source
	mutants map[int]Mutant // by number; numbers begin at 1
	numbers []int
	edits   []edit
	copies  []struct {
		number int
		code   string
	}
}

func (g *schemer) offset(p token.Pos) int { return g.s.fset.Position(p).Offset }

func (g *schemer) text(from, to token.Pos) string {
	return string(g.s.text[g.offset(from):g.offset(to)])
}

// inside returns the numbers of the mutants inside a node.
func (g *schemer) inside(n ast.Node) (list []int) {
	for _, i := range g.numbers {
		if m := g.mutants[i]; m.Start >= g.offset(n.Pos()) && m.End <= g.offset(n.End()) {
			list = append(list, i)
		}
	}
	return list
}

func (g *schemer) mutated(i int, n ast.Node) string {
	m := g.mutants[i]
	return string(g.s.text[g.offset(n.Pos()):m.Start]) + m.New + string(g.s.text[m.End:g.offset(n.End())])
}

func (g *schemer) edit(from, end token.Pos, with string) {
	g.edits = append(g.edits, edit{g.offset(from), g.offset(end), with})
}

func (g *schemer) copy(i int, code string) {
	g.copies = append(g.copies, struct {
		number int
		code   string
	}{i, code})
}

// schema returns the source of a file that contains the mutants with the given numbers, and the
// lines of each mutant.
func schema(s *source, mutants map[int]Mutant, numbers []int) (string, []copied) {
	g := &schemer{s: s, mutants: mutants, numbers: numbers}
	for _, d := range s.parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				g.function(d)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					g.table(v)
				}
			}
		}
	}
	var out strings.Builder
	at := 0
	slices.SortStableFunc(g.edits, func(a, b edit) int { return a.from - b.from })
	for _, e := range g.edits {
		out.Write(s.text[at:e.from])
		out.WriteString(e.with)
		at = e.end
	}
	out.Write(s.text[at:])
	lines := strings.Count(out.String(), "\n") + 1
	var where []copied
	for _, c := range g.copies {
		n := strings.Count(c.code, "\n") + 1
		out.WriteString("\n" + c.code)
		where = append(where, copied{c.number, lines + 1, lines + n})
		lines += n
	}
	return out.String(), where
}

func (g *schemer) function(d *ast.FuncDecl) {
	inside := g.inside(d.Body)
	if len(inside) == 0 {
		return
	}
	receiver, called := "", ""
	if d.Recv != nil {
		receiver = g.text(d.Recv.Pos(), d.Recv.End()) + " "
		called = strings.TrimSuffix(g.names(d.Recv, "mutantReceiver"), ", ") + "."
	}
	given := g.names(d.Type.Params, "mutantParameter")
	choice := " switch mutantChosen {"
	var all []string
	for _, i := range inside {
		name := fmt.Sprintf("mutant%d%s", i, d.Name.Name)
		call := called + name + "(" + given + ")"
		if d.Type.Results != nil {
			call = "return " + call
		} else {
			call += "; return"
		}
		choice += fmt.Sprintf(" case %d: %s;", i, call)
		all = append(all, strconv.Itoa(i))
		g.copy(i, "func "+receiver+name+g.text(d.Type.Params.Pos(), d.Type.End())+" "+g.mutated(i, d.Body))
	}
	choice += fmt.Sprintf(" case %d: mutantReached(%s)", reaching, strings.Join(all, ", "))
	g.edit(d.Body.Lbrace+1, d.Body.Lbrace+1, choice+" };")
}

// names returns the names of parameters as a list of arguments. A parameter without a name gets
// one.
func (g *schemer) names(list *ast.FieldList, invent string) string {
	var given strings.Builder
	n := 0
	for _, field := range list.List {
		dots := ""
		if _, ok := field.Type.(*ast.Ellipsis); ok {
			dots = "..."
		}
		if len(field.Names) == 0 {
			n++
			g.edit(field.Type.Pos(), field.Type.Pos(), fmt.Sprint(invent, n, " "))
			fmt.Fprint(&given, invent, n, dots, ", ")
		}
		for _, name := range field.Names {
			called := name.Name
			if called == "_" {
				n++
				called = fmt.Sprint(invent, n)
				g.edit(name.Pos(), name.End(), called)
			}
			given.WriteString(called + dots + ", ")
		}
	}
	return given.String()
}

func (g *schemer) table(v *ast.ValueSpec) {
	table := tableOf(v)
	if table == nil || len(g.inside(table)) == 0 {
		return
	}
	of := g.text(table.Type.Pos(), table.Type.End())
	if array, ok := table.Type.(*ast.ArrayType); ok && array.Len != nil {
		of = types.TypeString(g.s.info.TypeOf(table), func(p *types.Package) string {
			if p == g.s.pkg {
				return ""
			}
			return p.Name()
		})
	}
	choice := "func() " + of + " { switch mutantChosen {"
	var all []string
	for _, i := range g.inside(table) {
		name := fmt.Sprintf("mutant%d%s", i, v.Names[0].Name)
		choice += fmt.Sprintf(" case %d: return %s();", i, name)
		all = append(all, strconv.Itoa(i))
		g.copy(i, "func "+name+"() "+of+" { return "+g.mutated(i, table)+" }")
	}
	choice += fmt.Sprintf(" case %d: mutantReached(%s)", reaching, strings.Join(all, ", "))
	g.edit(table.Pos(), table.Pos(), choice+" }; return ")
	g.edit(table.End(), table.End(), " }()")
}
