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
	"path/filepath"
	"strings"
)

// source is one file of a package, with its types.
type source struct {
	text   []byte
	fset   *token.FileSet
	parsed *ast.File
	info   *types.Info
	pkg    *types.Package
}

// load reads the files of packages that a build without tags has, by their paths below root/dir.
// The packages are directories below root.
func load(root, dir string, packages []string) (map[string]*source, error) {
	exports, err := exported(root, packages)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	imported := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(exports[path])
	})
	all := map[string]*source{}
	for _, p := range packages {
		names, err := golist(root, "{{range .GoFiles}}{{.}}\n{{end}}", "./"+p)
		if err != nil {
			return nil, err
		}
		var of []*source
		for _, name := range strings.Fields(names) {
			path := filepath.Join(root, p, name)
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			parsed, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			s := &source{text: text, fset: fset, parsed: parsed}
			below, err := filepath.Rel(filepath.Join(root, dir), path)
			if err != nil {
				return nil, err
			}
			all[filepath.ToSlash(below)] = s
			of = append(of, s)
		}
		if err := check(p, fset, of, imported); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// check finds the types of the files of a package.
func check(path string, fset *token.FileSet, files []*source, imported types.Importer) error {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Defs: map[*ast.Ident]types.Object{}}
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.parsed)
	}
	conf := types.Config{Importer: imported, Error: func(error) {}} // the rest has types all the same
	pkg, err := conf.Check(path, fset, parsed, info)
	for _, f := range files {
		f.info, f.pkg = info, pkg
	}
	return err
}

// exported builds what the packages import and returns the files with its types.
func exported(root string, packages []string) (map[string]string, error) {
	args := make([]string, len(packages))
	for i, p := range packages {
		args[i] = "./" + p
	}
	list, err := golist(root, "{{.ImportPath}}\t{{.Export}}", append([]string{"-export", "-deps"}, args...)...)
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
