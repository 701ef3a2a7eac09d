package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// TestExamples: each exported type and function of rdmanet has an Example.
func TestExamples(t *testing.T) {
	names, err := filepath.Glob(root + "/rdmanet/*.go")
	assert.NilError(t, err)
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		assert.NilError(t, err)
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(set, files, "github.com/godat/godat/rdmanet")
	assert.NilError(t, err)
	assert.Check(t, len(p.Examples) > 0, "the package")
	assert.Assert(t, len(p.Types) > 10, "%d types", len(p.Types))
	for _, x := range p.Types {
		assert.Check(t, len(x.Examples) > 0, "type %s has no Example", x.Name)
	}
	for _, f := range p.Funcs {
		assert.Check(t, len(f.Examples) > 0, "%s has no Example", f.Name)
	}
}
