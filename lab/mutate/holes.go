package main

import (
	"fmt"
	"go/ast"
	"os"
	"regexp"
	"strings"
)

// readHoles reads mutants made by hand. Each line contains file, function, old code, new code and
// the bug, separated by tabs. A line that begins with # is a comment. The old code must occur once
// in the function; white space does not matter. In the new code \n stands for a newline.
func readHoles(path string, sources map[string]*source) ([]Mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var holes []Mutant
	var stale []string
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 5 || f[4] == "" {
			return nil, fmt.Errorf("%s:%d: must be file, function, code, code instead and bug, separated by tabs", path, i+1)
		}
		m, err := hole(sources[f[0]], f)
		if err != nil {
			stale = append(stale, fmt.Sprintf("%s:%d: %v", path, i+1, err))
			continue
		}
		holes = append(holes, m)
	}
	if len(stale) > 0 {
		return nil, fmt.Errorf("adapt these lines to the sources:\n  %s", strings.Join(stale, "\n  "))
	}
	return holes, nil
}

func hole(s *source, f []string) (Mutant, error) {
	if s == nil || s.parsed == nil {
		return Mutant{}, fmt.Errorf("no file %s", f[0])
	}
	words := strings.Fields(f[2])
	for i, w := range words {
		words[i] = regexp.QuoteMeta(w)
	}
	find, err := regexp.Compile(strings.Join(words, `\s+`))
	if err != nil {
		return Mutant{}, err
	}
	var found []Mutant
	for _, d := range s.parsed.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.Name != f[1] || fn.Body == nil {
			continue
		}
		from, to := s.fset.Position(fn.Body.Pos()).Offset, s.fset.Position(fn.Body.End()).Offset
		for _, at := range find.FindAllIndex(s.text[from:to], -1) {
			found = append(found, Mutant{
				File: f[0], Func: nameOf(fn), Line: strings.Count(string(s.text[:from+at[0]]), "\n") + 1, Start: from + at[0],
				End: from + at[1], Old: string(s.text[from+at[0] : from+at[1]]), New: strings.ReplaceAll(f[3], `\n`, "\n"),
				Hole: f[4],
			})
		}
	}
	if len(found) != 1 {
		return Mutant{}, fmt.Errorf("%s stands %d times in %s of %s", f[2], len(found), f[1], f[0])
	}
	return found[0], nil
}
