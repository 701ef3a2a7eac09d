package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// source is one file of a package, with its types. For a C file only text is set.
type source struct {
	text   []byte
	fset   *token.FileSet
	parsed *ast.File
	info   *types.Info
	pkg    *types.Package
}

// load reads the files that the build of each target uses. The keys are the paths below root.
func load(root string, targets []target) (map[string]*source, error) {
	fset := token.NewFileSet()
	all := map[string]*source{}
	for _, t := range targets {
		exports, err := exported(root, t)
		if err != nil {
			return nil, err
		}
		imported := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
			if exports[path] == "" {
				return nil, fmt.Errorf("no export data of %s", path)
			}
			return os.Open(exports[path])
		})
		names, err := golist(root, `{{join .GoFiles "\n"}}{{"\n"}}{{join .CgoFiles "\n"}}{{"\n"}}{{join .CFiles "\n"}}`,
			"-tags", t.tags, "./"+t.dir)
		if err != nil {
			return nil, err
		}
		var of []*source
		for _, name := range strings.Fields(names) {
			text, err := os.ReadFile(filepath.Join(root, t.dir, name))
			if err != nil {
				return nil, err
			}
			s := &source{text: text, fset: fset}
			all[path.Join(t.dir, name)] = s
			if path.Ext(name) == ".c" {
				continue
			}
			if s.parsed, err = parser.ParseFile(fset, name, text, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			of = append(of, s)
		}
		if err := check(t.dir, fset, of, imported); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// check computes the types of the files of a package. Names from C get no types. Errors are ignored
// in a package that uses C, because the other names get their types nevertheless.
func check(path string, fset *token.FileSet, files []*source, imported types.Importer) error {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.parsed)
	}
	conf := types.Config{Importer: imported, FakeImportC: true, Error: func(error) {}} // ignored
	pkg, err := conf.Check(path, fset, parsed, info)
	for _, f := range files {
		f.info, f.pkg = info, pkg
		if slices.ContainsFunc(f.parsed.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"C"` }) {
			err = nil
		}
	}
	return err
}

// exported builds the packages that a target imports, and returns the files with their types by
// import path.
func exported(root string, t target) (map[string]string, error) {
	list, err := golist(root, "{{.ImportPath}}\t{{.Export}}", "-tags", t.tags, "-export", "-deps", "./"+t.dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for line := range strings.Lines(list) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	return files, nil
}

func golist(root, format string, args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"list", "-f", format}, args...)...)
	cmd.Dir = root
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w\n%s", err, complaint.Bytes())
	}
	return string(out), nil
}
