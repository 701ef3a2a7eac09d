// Package docs checks the pages of the repository: the targets of links exist, commands and
// their flags exist, and Go snippets are code that compiles.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
)

const root = "../.."

// TestPages checks all pages that are in the repository.
func TestPages(t *testing.T) {
	pages := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		switch {
		case d.IsDir() && (name == ".git" || name == "bin" || name == "out" || d.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pages++
		for _, p := range problems(name, string(text)) {
			t.Errorf("%s: %s", name, p)
		}
		return nil
	})
	assert.NilError(t, err)
	assert.Assert(t, pages > 10, "only %d pages have been found", pages)
}

// TestProblems: problems finds what is wrong with a page, and nothing on a correct page.
func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"[a](testing.md)":                                  "",
		"[a](../README.md)":                                "",
		"[a](testing.md#faults)":                           "",
		"[a](#here)\n\n## Here":                            "",
		"[a](https://example.org/nowhere.md)":              "",
		"[a](nowhere.md)":                                  "nowhere.md",
		"[a\nb](nowhere.md)":                               "nowhere.md",
		"[a](testing.md#nowhere)":                          "#nowhere",
		"[a](#nowhere)":                                    "#nowhere",
		"    make test":                                    "",
		"    make frobnicate":                              "make frobnicate",
		"`make frobnicate`":                                "make frobnicate",
		"`make test bench-nick`":                           "make bench-nick",
		"    ci/rxe-vm.sh --memory 5 -- command --made-up": "",
		"    ci/rxe-vm.sh --mammory 5":                     "--mammory",
		"    ci/nowhere.sh":                                "ci/nowhere.sh",
		"    go run ./examples/hello":                      "",
		"    go run ./examples/goodbye":                    "./examples/goodbye",
		"    go test ./udat -run TestEVDResize":            "",
		"    go test ./udat -run TestFrobnicate":           "TestFrobnicate",
		"    go test -exec $PWD/ci/rxe-vm.sh ./udat -run TestEVDResize -v": "",
		"    ci/vm-tests.sh --no-race --run TestFrobnicate -v ./udat":      "TestFrobnicate",
		"    bin/datperf client 192.0.2.7 --size 64":                       "",
		"    bin/datperf client 192.0.2.7 --seize 64":                      "--seize",
		"`datperf devices`":                              "no command devices",
		"```go\n\tia, err := udat.Open(device)\n```\n":   "",
		"```go\n\tia, err := udat.Opened(device)\n```\n": "udat.Opened",
	} {
		got := strings.Join(problems("docs/page.md", text), "\n")
		assert.Assert(t, (want == "") == (got == "") && strings.Contains(got, want), "%q: %q", text, got)
	}
}

var (
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fence   = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	inline  = regexp.MustCompile("`([^`]+)`")
	script  = regexp.MustCompile(`^(?:\$PWD/)?(ci/[\w/-]+\.sh)$`)

	lowercase = regexp.MustCompile(`^[a-z]+$`)
	builtin   = map[string]bool{"help": true, "completion": true} // commands that spf13/cobra adds
)

// problems returns what is wrong with a page. name is its path from the root.
func problems(name, text string) (all []string) {
	bad := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == "go" && !strings.Contains(sources(), flat(m[2])) {
			bad("this snippet is in no Go file of the repository, so that nobody compiles it:\n%s", m[2])
		}
	}
	prose := fence.ReplaceAllStringFunc(text, func(block string) string {
		return strings.ReplaceAll(strings.ReplaceAll(block, "```", ""), "\n", "\n    ")
	})
	for _, m := range link.FindAllStringSubmatch(prose, -1) {
		to, anchor, _ := strings.Cut(m[1], "#")
		if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		target := text
		if to != "" {
			path := filepath.Join(root, filepath.Dir(name), to)
			if _, err := os.Stat(path); err != nil {
				bad("the link to %s is dead", m[1])
				continue
			}
			b, _ := os.ReadFile(path)
			target = string(b)
		}
		if anchor != "" && !hasAnchor(target, anchor) {
			bad("the link to %s is dead: there is no such heading #%s", m[1], anchor)
		}
	}
	for _, line := range strings.Split(prose, "\n") {
		if strings.HasPrefix(line, "    ") {
			all = append(all, wrongCommand(line)...)
			continue
		}
		for _, m := range inline.FindAllStringSubmatch(line, -1) {
			all = append(all, wrongCommand(m[1])...)
		}
	}
	return all
}

// hasAnchor reports whether a page has a heading for which GitHub generates the anchor.
func hasAnchor(page, anchor string) bool {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		if strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}

// wrongCommand checks the commands of a line: make targets, scripts and their options, datperf's
// commands and flags, and packages and tests of go.
func wrongCommand(line string) (all []string) {
	line, _, _ = strings.Cut(line, " # ")
	for _, part := range regexp.MustCompile(`&&|\||;`).Split(line, -1) {
		all = append(all, wrongWords(strings.Fields(part))...)
	}
	return all
}

func wrongWords(words []string) (all []string) {
	bad := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for len(words) > 0 && (strings.Contains(words[0], "=") || words[0] == "$" || words[0] == "env" || words[0] == "sudo") {
		words = words[1:]
	}
	if len(words) == 0 {
		return nil
	}
	command, checked, dir := words[0], "", "."
	switch {
	case command == "make":
		for _, w := range words[1:] {
			if strings.ContainsAny(w, "='[]") || strings.HasPrefix(w, "-") {
				break
			}
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(w) + `:`).MatchString(read("Makefile")) {
				bad("the Makefile has no target for: make %s", w)
			}
		}
		return all
	case command == "go" && len(words) > 1 && (words[1] == "test" || words[1] == "run" || words[1] == "build"):
		if words[1] != "test" && len(words) > 3 {
			words = words[:3] // what follows is the program's
		}
	case command == "go" && len(words) > 2 && words[1] == "-C":
		dir = words[2]
	case command == "datperf" || command == "bin/datperf":
		checked = read("cmd/datperf")
		if len(words) > 1 && lowercase.MatchString(words[1]) && !builtin[words[1]] &&
			!regexp.MustCompile(`Use: +"`+words[1]+`[ "]`).MatchString(checked) {
			bad("datperf has no command %s", words[1])
		}
	case script.MatchString(command):
		checked = read(script.FindStringSubmatch(command)[1])
		if strings.Contains(checked, "vm/common.sh") { // which parses the options
			checked += read("ci/vm/common.sh")
		}
	default:
		return nil
	}
	for i, w := range words {
		option := strings.TrimRight(strings.Split(w, "=")[0], ".,:)")
		switch m := script.FindStringSubmatch(w); {
		case w == "--":
			return all
		case m != nil && read(m[1]) == "":
			bad("there is no %s", m[1])
		case checked != "" && strings.HasPrefix(option, "--") && option != "--help" &&
			!strings.Contains(checked, option) && !strings.Contains(checked, `"`+option[2:]+`"`):
			bad("%s has no option %s", command, option)
		case strings.HasPrefix(w, "./") && !strings.Contains(w, "..."):
			if _, err := os.Stat(filepath.Join(root, dir, w)); err != nil {
				bad("there is no %s", w)
			}
		case i > 0 && strings.HasSuffix(words[i-1], "-run") && strings.HasPrefix(w, "Test") && w != "TestName":
			if !regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(strings.Split(w, "/")[0])).MatchString(tests()) {
				bad("there is no test %s", w)
			}
		}
	}
	return all
}

// read returns the text of a file, or of all Go files of a folder, or "".
func read(name string) string {
	path := filepath.Join(root, name)
	if info, err := os.Stat(path); err != nil {
		return ""
	} else if !info.IsDir() {
		b, _ := os.ReadFile(path)
		return string(b)
	}
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(path, "*.go"))
	for _, f := range files {
		b, _ := os.ReadFile(f)
		all.Write(b)
	}
	return all.String()
}

// goFiles returns the text of all Go files of the library, or only of its tests.
func goFiles(onlyTests bool) string {
	var all strings.Builder
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && (!onlyTests || strings.HasSuffix(path, "_test.go")) {
			b, _ := os.ReadFile(path)
			all.Write(b)
		}
		return nil
	})
	return all.String()
}

var (
	sources = sync.OnceValue(func() string { return flat(goFiles(false)) })
	tests   = sync.OnceValue(func() string { return goFiles(true) })
)

// flat returns code without indentation and empty lines.
func flat(code string) string {
	var all strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			all.WriteString(line + "\n")
		}
	}
	return all.String()
}

// TestErrors: each error that docs/errors.md quotes is in the library, and a test expects it.
func TestErrors(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(read("docs/errors.md"), -1)
	assert.Assert(t, len(rows) >= 10, "only %d rows", len(rows))
	for _, row := range rows {
		assert.Check(t, strings.Contains(tests(), row[1]), "no test expects the error %q", row[1])
	}
}

// TestNotHere: cverbs calls nothing that its package page lists as missing.
func TestNotHere(t *testing.T) {
	_, list, _ := strings.Cut(read("cverbs/doc.go"), "# What is not here")
	list, _, _ = strings.Cut(list, "\n// # ")
	names := regexp.MustCompile(`\b(ibv|rdma)_\w+`).FindAllString(list, -1)
	assert.Assert(t, len(names) > 0, "no names")
	for _, file := range []string{"cverbs", "cverbs/shim.c", "cverbs/shim.h", "cverbs/datapath.c", "cverbs/extended.c",
		"cverbs/extended_cq.c"} {
		for _, name := range names {
			called := regexp.MustCompile(`\b` + name + `\(`).MatchString(read(file))
			assert.Check(t, !called, "%s calls %s", file, name)
		}
	}
}
