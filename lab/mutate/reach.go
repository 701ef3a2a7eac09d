package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// reach maps each file to the lines that the tests of a package run.
type reach map[string]map[int]bool

// reachOf runs the first tests of a target on the loop device and returns the lines that they run.
func reachOf(root string, t target) (reach, error) {
	tmp, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	profile := filepath.Join(tmp, "cover")
	p := t.tests[0]
	cmd := exec.Command("go", "test", "-short", "-exec", filepath.Join(root, loopScript),
		"-coverpkg", "./"+t.dir, "-coverprofile", profile, "./"+p.dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the unbroken tests of %s fail: %w\n%s", p.dir, err, out)
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	return parseProfile(text)
}

// parseProfile parses a coverage profile, with lines like "module/file.go:10.2,12.3 2 1".
func parseProfile(text []byte) (reach, error) {
	r := reach{}
	for line := range bytes.Lines(text) {
		place, counts, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
		file, span, inFile := strings.Cut(place, ":")
		from, to, inSpan := strings.Cut(span, ",")
		if !ok || !inFile || !inSpan || strings.HasSuffix(counts, " 0") {
			continue
		}
		first, err := lineOf(from)
		if err != nil {
			return nil, err
		}
		last, err := lineOf(to)
		if err != nil {
			return nil, err
		}
		file = path.Base(file)
		if r[file] == nil {
			r[file] = map[int]bool{}
		}
		for n := first; n <= last; n++ {
			r[file][n] = true
		}
	}
	return r, nil
}

func lineOf(position string) (int, error) {
	line, _, _ := strings.Cut(position, ".")
	return strconv.Atoi(line)
}

func (r reach) covers(file string, line int) bool { return r[file][line] }
