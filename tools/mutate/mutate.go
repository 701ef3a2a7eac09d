package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// Mutant is one change of a source file.
type Mutant struct {
	File  string // base name
	Func  string // the function or the variable that it is in
	Line  int
	Start int // the bytes that New replaces
	End   int
	Old   string
	New   string
	Nth   int // among equal changes in the same function, from 1
}

// What says what the mutant changes, without its place.
func (m Mutant) What() string {
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

// Apply gives the source with the change made.
func (m Mutant) Apply(src []byte) []byte {
	return slices.Concat(src[:m.Start], []byte(m.New), src[m.End:])
}

// generator collects the mutants of one file.
type generator struct {
	file     string
	src      []byte
	fset     *token.FileSet
	in       string            // the present function
	giveErr  bool              // which returns an error last
	beside   map[ast.Node]bool // numbers that are returned with an error: results of a call that fails are undefined
	mutants  []Mutant
	repeated map[string]int
}

// Mutants gives the mutants of a file, in the order of their places. With only, those in the functions of these names.
func Mutants(file string, src []byte, only []string) ([]Mutant, error) {
	g := &generator{file: file, src: src, fset: token.NewFileSet(), beside: map[ast.Node]bool{}, repeated: map[string]int{}}
	parsed, err := parser.ParseFile(g.fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			g.in, g.giveErr = d.Name.Name, givesError(d.Type)
			if d.Body != nil && (only == nil || slices.Contains(only, g.in)) {
				ast.Inspect(d.Body, g.visit)
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				g.tables(d, only)
			}
		}
	}
	slices.SortStableFunc(g.mutants, func(a, b Mutant) int { return a.Start - b.Start })
	for i := range g.mutants {
		m := &g.mutants[i]
		key := m.Func + "\n" + m.Old + "\n" + m.New
		g.repeated[key]++
		m.Nth = g.repeated[key]
	}
	return g.mutants, nil
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
		g.mutants = append(g.mutants, Mutant{File: g.file, Func: g.in, Line: g.fset.Position(from).Line, Start: start, End: end, Old: old, New: with})
	}
}

// swaps are the operators that an operator is replaced with.
var swaps = map[token.Token][]string{
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LSS: {"<="}, token.LEQ: {"<"}, token.GTR: {">="}, token.GEQ: {">"},
	token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"+"},
	token.AND: {"|"}, token.OR: {"&"}, token.AND_NOT: {"&"},
	token.ADD_ASSIGN: {"-="}, token.SUB_ASSIGN: {"+="}, token.OR_ASSIGN: {"="},
	token.INC: {"--"}, token.DEC: {"++"},
}

func (g *generator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		g.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			g.add(n.Cond, "false")
		}
	case *ast.SwitchStmt:
		g.cases(n)
	case *ast.BinaryExpr:
		g.operator(n.OpPos, n.Op)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			g.replace(n.OpPos, n.X.Pos(), "")
		}
	case *ast.BasicLit:
		g.number(n)
	case *ast.Ident:
		g.constant(n)
	case *ast.CallExpr:
		g.call(n)
	case *ast.ReturnStmt:
		g.returned(n)
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.statements(n.Body)
	case *ast.CommClause:
		g.statements(n.Body)
	case *ast.AssignStmt:
		g.operator(n.TokPos, n.Tok)
	case *ast.IncDecStmt:
		g.operator(n.TokPos, n.Tok)
	case *ast.FuncLit:
		was := g.giveErr
		g.giveErr = givesError(n.Type)
		ast.Inspect(n.Body, g.visit)
		g.giveErr = was
		return false
	}
	return true
}

func (g *generator) operator(at token.Pos, op token.Token) {
	for _, other := range swaps[op] {
		g.replace(at, at+token.Pos(len(op.String())), other)
	}
}

// negate inverts a condition whose operators do not already give the inverse.
func (g *generator) negate(cond ast.Expr) {
	switch c := cond.(type) {
	case *ast.BinaryExpr:
		if c.Op == token.EQL || c.Op == token.NEQ {
			return
		}
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			return
		}
	}
	g.add(cond, "!("+g.text(cond)+")")
}

// cases negates the conditions of a switch without a tag and drops the values of others.
func (g *generator) cases(s *ast.SwitchStmt) {
	for _, c := range s.Body.List {
		clause := c.(*ast.CaseClause)
		switch {
		case s.Tag == nil:
			for _, cond := range clause.List {
				g.negate(cond)
			}
		case len(clause.List) == 1:
			g.add(clause, "")
		default:
			for i, v := range clause.List {
				from, to := v.Pos(), v.End()
				if i+1 < len(clause.List) {
					to = clause.List[i+1].Pos()
				} else {
					from = clause.List[i-1].End()
				}
				g.replace(from, to, "")
			}
		}
	}
}

func (g *generator) number(n *ast.BasicLit) {
	if n.Kind != token.INT || g.beside[n] {
		return
	}
	if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
		g.add(n, strconv.FormatInt(v+1, 10))
		if v > 1 {
			g.add(n, strconv.FormatInt(v-1, 10))
		}
	}
}

func (g *generator) constant(n *ast.Ident) {
	switch n.Name {
	case "true":
		g.add(n, "false")
	case "false":
		g.add(n, "true")
	case "PrivLocalRead":
		g.add(n, "PrivLocalWrite")
	case "PrivLocalWrite":
		g.add(n, "PrivLocalRead")
	case "sendFlags":
		g.add(n, "rdmaFlags")
	case "rdmaFlags":
		g.add(n, "sendFlags")
	}
}

func (g *generator) call(n *ast.CallExpr) {
	if id, ok := n.Fun.(*ast.Ident); ok {
		switch id.Name {
		case "min":
			g.add(id, "max")
		case "max":
			g.add(id, "min")
		}
	}
}

// returned hides an error.
func (g *generator) returned(n *ast.ReturnStmt) {
	if !g.giveErr || len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	if id, ok := last.(*ast.Ident); ok && id.Name == "nil" {
		return
	}
	for _, other := range n.Results[:len(n.Results)-1] {
		g.beside[other] = true
	}
	g.add(last, "nil")
}

// statements deletes those that may be missing without an error of the compiler.
func (g *generator) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if !isLocking(s.X) {
				g.add(s, "")
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				g.add(s, "")
			}
		case *ast.DeferStmt:
			if !isLocking(s.Call) {
				g.add(s, "")
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt, *ast.BranchStmt:
			g.add(s, "")
		case *ast.IfStmt:
			if s.Else == nil && s.Init == nil {
				g.add(s, "")
			}
		}
	}
}

// isLocking says that a call takes or gives back a lock: without it everything hangs, which shows nothing.
func isLocking(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Lock", "Unlock", "unlock", "unlockLater"}, sel.Sel.Name)
}

// tables mutates what variables at the top of a file are made of: entries of tables are dropped, or get the value of the
// next one.
func (g *generator) tables(d *ast.GenDecl, only []string) {
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		g.in = v.Names[0].Name
		if only != nil && !slices.Contains(only, g.in) {
			continue
		}
		for _, value := range v.Values {
			ast.Inspect(value, g.entry)
		}
	}
}

func (g *generator) entry(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CompositeLit:
		g.entries(n)
	case *ast.BinaryExpr:
		g.operator(n.OpPos, n.Op)
	case *ast.Ident:
		g.constant(n)
	case *ast.FuncLit:
		return false
	}
	return true
}

func (g *generator) entries(c *ast.CompositeLit) {
	var values []string
	for _, e := range c.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		if text := g.text(kv.Value); !slices.Contains(values, text) {
			values = append(values, text)
		}
	}
	for _, e := range c.Elts {
		kv := e.(*ast.KeyValueExpr)
		text := g.text(kv.Value)
		if inner, ok := kv.Value.(*ast.CompositeLit); ok && keyed(inner) {
			continue // its own entries are mutated
		}
		if inner, ok := kv.Value.(*ast.CompositeLit); ok && len(inner.Elts) > 0 {
			g.add(kv.Value, "{}")
		}
		_, isMap := c.Type.(*ast.MapType)
		if _, inner := kv.Value.(*ast.CompositeLit); !inner && !isMap {
			continue // a field of a structure
		}
		if i := slices.Index(values, text); len(values) > 1 {
			other := values[(i+1)%len(values)]
			if other == "{}" {
				other = values[(i+2)%len(values)]
			}
			g.add(kv.Value, other)
		}
	}
}

// keyed says that a composite value has entries with keys.
func keyed(c *ast.CompositeLit) bool {
	if len(c.Elts) == 0 {
		return false
	}
	_, ok := c.Elts[0].(*ast.KeyValueExpr)
	return ok
}
