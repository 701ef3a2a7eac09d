package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// The operators create bugs that a maintainer might make.

// swaps maps each operator to the one that replaces it.
var swaps = map[token.Token]string{
	token.EQL: "!=", token.NEQ: "==",
	token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">",
	token.ADD: "-", token.SUB: "+", token.MUL: "+",
	token.AND: "|", token.OR: "&", token.AND_NOT: "&",
	token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.OR_ASSIGN: "=",
}

func (g *generator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		g.negate(n.Cond)
	case *ast.ForStmt:
		g.firstTurn(n.Body)
	case *ast.RangeStmt:
		g.firstTurn(n.Body)
		g.firstOnly(n)
	case *ast.SwitchStmt:
		g.cases(n)
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR { // drop one of the clauses
			g.add(n, g.text(n.X))
			g.add(n, g.text(n.Y))
		} else {
			g.operator(n.OpPos, n.Op)
		}
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
	case *ast.SelectorExpr:
		g.exchange(n)
	case *ast.CompositeLit:
		g.elements(n)
	case *ast.ReturnStmt:
		g.returned(n)
		g.widths(n.Results)
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.statements(n.Body)
	case *ast.CommClause:
		g.statements(n.Body)
	case *ast.AssignStmt:
		g.operator(n.TokPos, n.Tok)
		g.keep(n)
		g.widths(n.Rhs)
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
	if other, ok := swaps[op]; ok {
		g.replace(at, at+token.Pos(len(op.String())), other)
	}
}

// negate negates a condition. It skips conditions with the operators ==, !=, &&, || and !, which
// other mutants change.
func (g *generator) negate(cond ast.Expr) {
	switch c := cond.(type) {
	case *ast.BinaryExpr:
		if c.Op == token.EQL || c.Op == token.NEQ || c.Op == token.LAND || c.Op == token.LOR {
			return
		}
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			return
		}
	}
	g.add(cond, "!("+g.text(cond)+")")
}

// firstTurn makes a loop end after its first iteration.
func (g *generator) firstTurn(body *ast.BlockStmt) {
	if n := len(body.List); n > 0 {
		switch body.List[n-1].(type) {
		case *ast.BranchStmt, *ast.ReturnStmt:
			return
		}
	}
	g.replace(body.Rbrace, body.Rbrace, "; break ")
}

// firstOnly makes the conditions of a loop hold for the first element at most.
func (g *generator) firstOnly(loop *ast.RangeStmt) {
	key, ok := loop.Key.(*ast.Ident)
	if !ok || key.Name == "_" || !g.isInteger(key) {
		return
	}
	for _, s := range loop.Body.List {
		if s, ok := s.(*ast.IfStmt); ok && s.Init == nil {
			g.add(s.Cond, key.Name+" == 0 && ("+g.text(s.Cond)+")")
		}
	}
}

// keep makes an assignment of a number add to the value from an earlier use.
func (g *generator) keep(s *ast.AssignStmt) {
	if s.Tok != token.ASSIGN || len(s.Lhs) != 1 || !g.isInteger(s.Lhs[0]) {
		return
	}
	if tv := g.info.Types[s.Rhs[0]]; tv.Value == nil || tv.Value.String() != "0" { // that one is left out, see statements
		g.replace(s.TokPos, s.TokPos+1, "+=")
	}
}

// opposites are parts of the names of limits and counts that a maintainer may exchange.
var opposites = [][2]string{{"Recv", "Request"}, {"Recv", "Send"}, {"In", "Out"}, {"in", "out"}, {"Read", "Write"},
	{"Soft", "Hard"}, {"soft", "hard"}, {"recvs", "requests"}, {"head", "tail"}, {"Rx", "Tx"}}

// exchange replaces a number in a field by that of the opposite field of the same struct.
func (g *generator) exchange(x *ast.SelectorExpr) {
	field := g.info.Selections[x]
	if field == nil || field.Kind() != types.FieldVal || !g.isInteger(x) {
		return
	}
	for _, names := range opposites {
		for i := range names {
			twin := strings.Replace(x.Sel.Name, names[i], names[1-i], 1)
			other, _, _ := types.LookupFieldOrMethod(field.Recv(), true, g.pkg, twin)
			if v, ok := other.(*types.Var); ok && twin != x.Sel.Name && types.Identical(v.Type(), field.Obj().Type()) {
				g.add(x.Sel, twin)
				return
			}
		}
	}
}

func (g *generator) isInteger(e ast.Expr) bool {
	t := g.info.TypeOf(e)
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsInteger != 0
}

// cases negates the conditions of a switch without a tag. In a switch with a tag it deletes values
// of the cases.
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
		case len(clause.List) > 1:
			for i := range clause.List {
				g.drop(clause.List, i)
			}
		}
	}
}

// drop deletes element i of a list of two or more elements, with a comma.
func (g *generator) drop(list []ast.Expr, i int) {
	from, to := list[i].Pos(), list[i].End()
	if i+1 < len(list) {
		to = list[i+1].Pos()
	} else {
		from = list[i-1].End()
	}
	g.replace(from, to, "")
}

// elements deletes fields or elements of composite literals.
func (g *generator) elements(c *ast.CompositeLit) {
	for i, e := range c.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		switch {
		case !ok && g.isStruct(c): // a struct without field names must be complete
		case len(c.Elts) == 1:
			g.add(e, "")
		default:
			g.drop(c.Elts, i)
		}
		if ok {
			e = kv.Value
		}
		g.widths([]ast.Expr{e})
	}
}

func (g *generator) isStruct(e ast.Expr) bool {
	t := g.info.TypeOf(e)
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Struct)
	return ok
}

// widths truncates values of type uint64 to 32 bits.
func (g *generator) widths(list []ast.Expr) {
	for _, e := range list {
		tv, ok := g.info.Types[e]
		if !ok || tv.Value != nil || tv.Type == nil {
			continue
		}
		b, ok := tv.Type.Underlying().(*types.Basic)
		if !ok || b.Kind() != types.Uint64 {
			continue
		}
		name := types.TypeString(tv.Type, func(p *types.Package) string {
			if p == g.pkg {
				return ""
			}
			return p.Name()
		})
		g.add(e, name+"(uint32("+g.text(e)+"))")
	}
}

func (g *generator) number(n *ast.BasicLit) {
	if n.Kind != token.INT || g.withError[n] {
		return
	}
	if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
		g.add(n, strconv.FormatInt(v+1, 10))
		if v > 1 {
			g.add(n, strconv.FormatInt(v-1, 10))
		}
	}
}

// twins maps names to other names that are easily confused with them.
var twins = map[string]string{
	"true": "false", "false": "true",
	"PrivLocalRead": "PrivLocalWrite", "PrivLocalWrite": "PrivLocalRead",
	"sendFlags": "rdmaFlags", "rdmaFlags": "sendFlags",
}

func (g *generator) constant(n *ast.Ident) {
	if twin, ok := twins[n.Name]; ok {
		g.add(n, twin)
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
	if f, ok := n.Fun.(*ast.SelectorExpr); ok && g.text(f) == "errors.Join" && len(n.Args) > 1 {
		for i, a := range n.Args { // an error path that leaves one resource
			if _, ok := a.(*ast.CallExpr); ok {
				g.drop(n.Args, i)
			}
		}
	}
	if tv := g.info.Types[n.Fun]; !tv.IsType() && !tv.IsBuiltin() {
		g.widths(n.Args)
	}
}

// returned replaces a returned error by nil.
func (g *generator) returned(n *ast.ReturnStmt) {
	if !g.giveErr || len(n.Results) == 0 {
		return
	}
	last := n.Results[len(n.Results)-1]
	if id, ok := last.(*ast.Ident); ok && id.Name == "nil" {
		return
	}
	for _, other := range n.Results[:len(n.Results)-1] {
		g.withError[other] = true
	}
	g.add(last, "nil")
}

// statements deletes statements that the compiler does not require: assignments, calls (so that a
// wait or a notification is missing), and whole if statements.
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
		case *ast.IncDecStmt: // counted not at all, and twice
			g.add(s, "")
			g.add(s, g.text(s)+"; "+g.text(s))
		case *ast.SendStmt, *ast.GoStmt, *ast.BranchStmt:
			g.add(s, "")
		case *ast.IfStmt:
			if s.Else == nil && s.Init == nil {
				g.add(s, "")
			}
		}
	}
}

// isLocking reports whether a call acquires or releases a lock. Without such a call everything
// hangs, which says nothing about the tests.
func isLocking(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	name := ""
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
	case *ast.Ident:
		name = f.Name
	}
	return slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock", "unlock", "unlockLater", "panic"}, name)
}

// declaration mutates constants and variables at package level. A variable whose value is a
// composite literal is a table. It is copied for each of its mutants, as functions are: its entries
// are deleted, or get the value of the next entry. Each mutant of a constant, or of a variable that
// is not a table, needs its own program. Numbers that depend on iota are only names, so they are
// not mutated.
func (g *generator) declaration(d *ast.GenDecl) {
	if d.Tok != token.VAR && d.Tok != token.CONST {
		return
	}
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		if v.Names[0].Name == "_" { // an assertion that the compiler checks
			continue
		}
		g.in, g.within, g.giveErr = v.Names[0].Name, v, false
		if table := tableOf(v); table != nil && d.Tok == token.VAR {
			ast.Inspect(table, g.entry)
			continue
		}
		g.alone = true
		for _, value := range v.Values {
			if !counted(value) {
				ast.Inspect(value, g.visit)
			}
		}
		g.alone = false
	}
}

// counted reports whether a value depends on iota.
func counted(value ast.Expr) (found bool) {
	ast.Inspect(value, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == "iota"
		return !found
	})
	return found
}

// tableOf returns the composite literal that is the value of a variable, or nil.
func tableOf(v *ast.ValueSpec) *ast.CompositeLit {
	if len(v.Names) != 1 || len(v.Values) != 1 || v.Names[0].Name == "_" {
		return nil
	}
	c, ok := v.Values[0].(*ast.CompositeLit)
	if !ok || c.Type == nil {
		return nil
	}
	return c
}

func (g *generator) entry(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.CompositeLit:
		g.elements(n)
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
		inner, nested := kv.Value.(*ast.CompositeLit)
		if nested && keyed(inner) {
			continue // the inner entries are mutated instead
		}
		if nested && len(inner.Elts) > 0 {
			g.add(kv.Value, "{}")
		}
		if _, isMap := c.Type.(*ast.MapType); !nested && !isMap {
			continue // a field of a struct
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

// keyed reports whether the entries of a composite literal have keys.
func keyed(c *ast.CompositeLit) bool {
	if len(c.Elts) == 0 {
		return false
	}
	_, ok := c.Elts[0].(*ast.KeyValueExpr)
	return ok
}
