package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// All mutants of a package are built into one program, and an environment variable says which of them it is: to build a
// program for each takes longer than to test it. A function gets a copy for each of its mutants and begins with a switch
// that calls the one chosen; a table becomes a function that gives the one chosen.

// mutantEnv names the number of the mutant that the tests run on; without it they run on the sources as they are.
const mutantEnv = "GODAT_MUTANT"

// chooser is the file that is added to the package.
const chooser = `package %s

import (
	"os"
	"strconv"
)

var mutantChosen = func() int { n, _ := strconv.Atoi(os.Getenv("` + mutantEnv + `")); return n }()
`

// copied is the lines of a generated file that are of one mutant.
type copied struct{ number, from, to int }

// schema gives the source of a file with all its mutants in it, by their numbers, which are not 0.
func schema(file string, src []byte, mutants map[int]Mutant, numbers []int) (string, []copied, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	text := func(from, to token.Pos) string { return string(src[offset(from):offset(to)]) }
	inside := func(n ast.Node) (list []int) {
		for _, i := range numbers {
			if m := mutants[i]; m.Start >= offset(n.Pos()) && m.End <= offset(n.End()) {
				list = append(list, i)
			}
		}
		return list
	}
	mutated := func(i int, n ast.Node) string {
		m := mutants[i]
		return string(src[offset(n.Pos()):m.Start]) + m.New + string(src[m.End:offset(n.End())])
	}

	type copyOf struct {
		number int
		code   string
	}
	var copies []copyOf
	var out strings.Builder
	at := 0
	insert := func(p token.Pos, code string) {
		out.Write(src[at:offset(p)])
		out.WriteString(code)
		at = offset(p)
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body == nil || len(inside(d.Body)) == 0 {
				continue
			}
			receiver, called := "", ""
			if d.Recv != nil {
				receiver, called = text(d.Recv.Pos(), d.Recv.End())+" ", d.Recv.List[0].Names[0].Name+"."
			}
			choice := " switch mutantChosen {"
			for _, i := range inside(d.Body) {
				name := fmt.Sprintf("mutant%d%s", i, d.Name.Name)
				call := called + name + "(" + arguments(d.Type) + ")"
				if d.Type.Results != nil {
					call = "return " + call
				} else {
					call += "; return"
				}
				choice += fmt.Sprintf(" case %d: %s;", i, call)
				copies = append(copies, copyOf{i, "func " + receiver + name + text(d.Type.Params.Pos(), d.Type.End()) + " " + mutated(i, d.Body)})
			}
			insert(d.Body.Lbrace+1, choice+" };")
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || d.Tok != token.VAR || len(v.Values) != 1 || len(inside(v.Values[0])) == 0 {
					continue
				}
				value := v.Values[0]
				table, ok := value.(*ast.CompositeLit)
				if !ok {
					return "", nil, fmt.Errorf("%s: %s is not a table", file, v.Names[0].Name)
				}
				choice := "func() " + text(table.Type.Pos(), table.Type.End()) + " { switch mutantChosen {"
				for _, i := range inside(value) {
					name := fmt.Sprintf("mutant%d%s", i, v.Names[0].Name)
					choice += fmt.Sprintf(" case %d: return %s();", i, name)
					copies = append(copies, copyOf{i, "func " + name + "() " + text(table.Type.Pos(), table.Type.End()) + " { return " + mutated(i, value) + " }"})
				}
				insert(value.Pos(), choice+" }; return ")
				insert(value.End(), " }()")
			}
		}
	}
	out.Write(src[at:])
	lines := strings.Count(out.String(), "\n") + 1
	var where []copied
	for _, c := range copies {
		n := strings.Count(c.code, "\n") + 1
		out.WriteString("\n" + c.code)
		where = append(where, copied{c.number, lines + 1, lines + n})
		lines += n
	}
	return out.String(), where, nil
}

// arguments hands on the parameters of a function, all of which have names.
func arguments(f *ast.FuncType) string {
	var names []string
	for _, field := range f.Params.List {
		for _, name := range field.Names {
			given := name.Name
			if _, ok := field.Type.(*ast.Ellipsis); ok {
				given += "..."
			}
			names = append(names, given)
		}
	}
	return strings.Join(names, ", ")
}
