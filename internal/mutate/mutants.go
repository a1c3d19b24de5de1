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

// Kinds of mutants.
const (
	kindCondition  = "condition"  // a condition is negated
	kindComparison = "comparison" // < becomes <=, == becomes !=
	kindLogic      = "logic"      // && becomes ||
	kindArithmetic = "arithmetic" // + becomes -
	kindReturn     = "return"     // an error or a boolean is returned as its opposite
	kindCall       = "call"       // a call is dropped
	kindAssignment = "assignment" // an assignment is dropped
	kindBranch     = "branch"     // continue becomes break, either is dropped
	kindConstant   = "constant"   // a number is one larger, true becomes false
)

// A mutant is one small change of one file.
type mutant struct {
	file         string // as given to mutants
	line, column int
	kind         string
	from, to     string // what is replaced, by what
	offset       int    // of from, in bytes
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d:%d %s: %s → %s", m.file, m.line, m.column, m.kind, oneLine(m.from), oneLine(m.to))
}

// oneLine is text shortened for a report.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if s == "" {
		return "(nothing)"
	}
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}

// apply is the source with the mutant in it.
func (m mutant) apply(src []byte) []byte {
	return slices.Concat(src[:m.offset], []byte(m.to), src[m.offset+len(m.from):])
}

// mutants lists what can be changed in a Go source file, in the order of the
// text. Whether the result compiles is not known yet.
func mutants(file string, src []byte) ([]mutant, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{file: file, src: src, set: set}
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function(fn.Type, fn.Body)
		}
	}
	slices.SortStableFunc(f.found, func(a, b mutant) int { return a.offset - b.offset })
	return f.found, nil
}

type finder struct {
	file  string
	src   []byte
	set   *token.FileSet
	found []mutant
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *finder) text(from, to token.Pos) string { return string(f.src[f.offset(from):f.offset(to)]) }

func (f *finder) add(kind string, from, to token.Pos, by string) {
	at := f.set.Position(from)
	f.found = append(f.found, mutant{
		file: f.file, line: at.Line, column: at.Column, kind: kind,
		from: f.text(from, to), to: by, offset: at.Offset,
	})
}

// function finds the mutants of one body. Literals of functions inside have
// results of their own.
func (f *finder) function(typ *ast.FuncType, body *ast.BlockStmt) {
	returnsError := lastIsError(typ)
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			f.function(n.Type, n.Body)
			return false
		case *ast.IfStmt:
			f.negate(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				f.add(kindCondition, n.Cond.Pos(), n.Cond.End(), "false")
			}
		case *ast.BinaryExpr:
			f.binary(n)
		case *ast.ReturnStmt:
			f.returns(n, returnsError)
		case *ast.ExprStmt:
			if call, ok := n.X.(*ast.CallExpr); ok && !reports(call) {
				f.add(kindCall, n.Pos(), n.End(), "")
			}
		case *ast.DeferStmt:
			if _, literal := n.Call.Fun.(*ast.FuncLit); !literal {
				f.add(kindCall, n.Pos(), n.End(), "")
			}
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE && assignsField(n) {
				f.add(kindAssignment, n.Pos(), n.End(), "")
			}
		case *ast.IncDecStmt:
			f.add(kindAssignment, n.Pos(), n.End(), "")
		case *ast.BranchStmt:
			f.branch(n)
		case *ast.BasicLit:
			f.number(n)
		case *ast.Ident:
			switch n.Name {
			case "true":
				f.add(kindConstant, n.Pos(), n.End(), "false")
			case "false":
				f.add(kindConstant, n.Pos(), n.End(), "true")
			}
		case *ast.ArrayType: // its length is a type
			return false
		case *ast.GenDecl:
			return n.Tok != token.TYPE
		}
		return true
	})
}

// negate adds the opposite of a condition, unless its own operator is changed
// into just that.
func (f *finder) negate(cond ast.Expr) {
	if b, ok := cond.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	f.add(kindCondition, cond.Pos(), cond.End(), "!("+f.text(cond.Pos(), cond.End())+")")
}

var operators = map[token.Token]struct {
	kind string
	to   token.Token
}{
	token.LSS:  {kindComparison, token.LEQ},
	token.LEQ:  {kindComparison, token.LSS},
	token.GTR:  {kindComparison, token.GEQ},
	token.GEQ:  {kindComparison, token.GTR},
	token.EQL:  {kindComparison, token.NEQ},
	token.NEQ:  {kindComparison, token.EQL},
	token.LAND: {kindLogic, token.LOR},
	token.LOR:  {kindLogic, token.LAND},
	token.ADD:  {kindArithmetic, token.SUB},
	token.SUB:  {kindArithmetic, token.ADD},
	token.MUL:  {kindArithmetic, token.QUO},
	token.QUO:  {kindArithmetic, token.MUL},
}

func (f *finder) binary(n *ast.BinaryExpr) {
	op, ok := operators[n.Op]
	if !ok || n.Op == token.ADD && (isText(n.X) || isText(n.Y)) {
		return
	}
	f.add(op.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), op.to.String())
}

// isText reports whether an operand is a string for certain.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (isText(e.X) || isText(e.Y))
	}
	return false
}

// returns swallows errors.
func (f *finder) returns(n *ast.ReturnStmt, returnsError bool) {
	if len(n.Results) == 0 || !returnsError {
		return
	}
	last := n.Results[len(n.Results)-1]
	if id, ok := last.(*ast.Ident); ok && id.Name == "nil" {
		return
	}
	f.add(kindReturn, last.Pos(), last.End(), "nil")
}

func lastIsError(t *ast.FuncType) bool {
	if t.Results == nil || len(t.Results.List) == 0 {
		return false
	}
	id, ok := t.Results.List[len(t.Results.List)-1].Type.(*ast.Ident)
	return ok && id.Name == "error"
}

// assignsField reports whether an assignment changes a field, an element or what
// a pointer points to, and calls nothing: without it the rest still compiles.
func assignsField(n *ast.AssignStmt) bool {
	for _, e := range n.Lhs {
		switch e.(type) {
		case *ast.SelectorExpr, *ast.IndexExpr, *ast.StarExpr:
		default:
			return false
		}
	}
	return true
}

func (f *finder) branch(n *ast.BranchStmt) {
	if n.Label != nil {
		return
	}
	switch n.Tok {
	case token.CONTINUE:
		f.add(kindBranch, n.Pos(), n.End(), "break")
	case token.BREAK:
		f.add(kindBranch, n.Pos(), n.End(), "")
	}
}

func (f *finder) number(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
		f.add(kindConstant, n.Pos(), n.End(), strconv.FormatInt(v+1, 10))
	}
}

// reports tells calls that only tell somebody something: logs, progress and
// printed lines.
func reports(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch sel.Sel.Name {
	case "Debug", "Info", "Warn", "DebugContext", "InfoContext", "WarnContext", "ErrorContext", "LogAttrs",
		"Fprintf", "Fprintln", "Fprint", "Printf", "Println", "Spin", "StopSpin":
		return true
	case "Error":
		on, ok := sel.X.(*ast.SelectorExpr)
		return ok && strings.EqualFold(on.Sel.Name, "log")
	}
	return false
}
