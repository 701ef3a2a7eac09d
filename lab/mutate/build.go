package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// program names the folder with the test binaries of some mutants, and with the overlay that they
// are built with.
type program struct{ folder string }

func (p program) binary(of place) string {
	return filepath.Join(p.folder, strings.ReplaceAll(of.dir, "/", "_")+"-"+of.device+".test")
}

func (p program) overlay() string { return filepath.Join(p.folder, "overlay.json") }

// generated returns the path of the generated source of a file, which contains all mutants of the
// file. In its errors the compiler names either this path or that of the original file.
func (b *bench) generated(file string) string {
	return filepath.Join(b.tmp, strings.ReplaceAll(file, "/", "_"))
}

var complaint = regexp.MustCompile(`(?m)^(\S+\.go):(\d+):\d+: (.*)$`)

// overlay writes the overlay of a program, which maps each replaced file to its replacement.
func (b *bench) overlay(p program, replace map[string]string) error {
	list, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(p.overlay(), list, 0o666)
}

// compile runs the go command with the overlay of a program and returns its output.
func (b *bench) compile(p program, args ...string) ([]byte, error) {
	args = slices.Insert(args, len(args)-1, "-gcflags=-e", "-overlay", p.overlay())
	cmd := exec.CommandContext(b.ctx, "go", args...)
	cmd.Dir = b.o.root
	return cmd.CombinedOutput()
}

// compileTests builds the tests of a package.
func (b *bench) compileTests(p program, of place) ([]byte, error) {
	args := []string{"test", "-c", "-vet=off", "-o", p.binary(of)}
	if b.o.gate {
		args = append(args, of.asGate()...)
	}
	return b.compile(p, append(args, "./"+of.dir)...)
}

// compileTarget builds a package on its own, because its tests do not contain it.
func (b *bench) compileTarget(p program, t target) ([]byte, error) {
	return b.compile(p, "build", "-buildvcs=false", "-tags", t.tags, "-o", os.DevNull, "./"+t.dir)
}

// build compiles the tests with all mutants. Mutants that do not compile are recorded in b.dead and
// left out.
func (b *bench) build() error {
	byFile := map[string]map[int]Mutant{}
	tagged := map[string]target{}
	for i, m := range b.mutants {
		if m.Alone {
			continue
		}
		if t := b.targetOf(m); t.tags != "" {
			tagged[t.dir] = t
		}
		if byFile[m.File] == nil {
			byFile[m.File] = map[int]Mutant{}
		}
		byFile[m.File][i+1] = m
	}
	where := map[string][]copied{}
	overlay := map[string]string{}
	write := func(file, code string) error {
		overlay[filepath.Join(b.o.root, file)] = b.generated(file)
		return os.WriteFile(b.generated(file), []byte(code), 0o666)
	}
	for {
		for file, of := range byFile {
			numbers := slices.DeleteFunc(slices.Sorted(maps.Keys(of)), func(i int) bool { return b.dead[i] != "" })
			code, lines := schema(b.sources[file], of, numbers)
			where[file], where[b.generated(file)] = lines, lines
			err := errors.Join(write(file, code),
				write(path.Join(path.Dir(file), "mutant_chosen.go"), fmt.Sprintf(chooser, b.sources[file].parsed.Name.Name)))
			if err != nil {
				return err
			}
		}
		if err := b.overlay(b.most, overlay); err != nil {
			return err
		}
		var out []byte
		var err error
		for _, t := range tagged {
			if err == nil {
				out, err = b.compileTarget(b.most, t)
			}
		}
		for p := range b.suites {
			if err == nil {
				out, err = b.compileTests(b.most, p)
			}
		}
		if err == nil {
			return nil
		}
		before := len(b.dead)
		for _, c := range complaint.FindAllSubmatch(out, -1) {
			line, _ := strconv.Atoi(string(c[2]))
			name := path.Clean(string(c[1]))
			if strings.HasPrefix(name, "../") { // the go command names a file by its relative path if that is shorter
				name = filepath.Join(b.o.root, name)
			}
			name = strings.TrimPrefix(name, b.o.root+"/") // cgo names it by its absolute path
			for _, w := range where[name] {
				if line >= w.from && line <= w.to && b.dead[w.number] == "" {
					b.dead[w.number] = string(c[3])
				}
			}
		}
		if len(b.dead) == before {
			return fmt.Errorf("the tests do not compile: %w\n%s", err, out)
		}
	}
}

// buildAlone compiles the tests of a mutant that needs its own program.
func (b *bench) buildAlone(p program, m Mutant) error {
	changed := filepath.Join(p.folder, "changed"+path.Ext(m.File))
	err := errors.Join(os.Mkdir(p.folder, 0o777), os.WriteFile(changed, m.Apply(b.sources[m.File].text), 0o666),
		b.overlay(p, map[string]string{filepath.Join(b.o.root, m.File): changed}))
	var out []byte
	if t := b.targetOf(m); err == nil && t.tags != "" {
		out, err = b.compileTarget(p, t)
	}
	for _, at := range b.placesOf(m) {
		if err == nil {
			out, err = b.compileTests(p, at)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, firstLine(out))
	}
	return nil
}
