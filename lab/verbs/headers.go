package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// The headers whose functions and enumerations are listed.
const (
	verbsHeader = "infiniband/verbs.h"
	cmHeader    = "rdma/rdma_cma.h"
)

// function is a function that a header declares or defines.
type function struct {
	header string
	name   string
	inline bool   // true: the header has the body; false: a library has it
	result string // the type: "struct ibv_pd *"
	params string // with names, without the parentheses; "void" if there are none
}

// enum is an enumeration of a header.
type enum struct {
	header string
	name   string
	values []string
}

// declared is what the installed headers declare, in the order of the headers.
type declared struct {
	functions []function
	enums     []enum
}

// readHeaders runs the C preprocessor on the two headers. It returns what the two files declare,
// without the files that they include.
func readHeaders() (declared, error) {
	cc := exec.Command("cc", "-E", "-x", "c", "-")
	cc.Stdin = strings.NewReader(fmt.Sprintf("#include <%s>\n#include <%s>\n", verbsHeader, cmHeader))
	var stderr bytes.Buffer
	cc.Stderr = &stderr
	text, err := cc.Output()
	if err != nil {
		return declared{}, fmt.Errorf("the C preprocessor: %w: %s", err, stderr.String())
	}
	return parse(string(text)), nil
}

var (
	marker = regexp.MustCompile(`^# \d+ "([^"]*)"`)
	// Inside the two outer pairs of parentheses, an attribute has at most one further level.
	attribute = regexp.MustCompile(`__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)`)
	spaces    = regexp.MustCompile(`\s+`)
	named     = regexp.MustCompile(`(\w+)\s*\(`)
	enumName  = regexp.MustCompile(`^(?:typedef )?enum (\w+) \{`)
	valueName = regexp.MustCompile(`^\s*(\w+)`)
)

// parse splits preprocessed C into declarations, and returns the functions and enumerations among
// them.
func parse(text string) (d declared) {
	var header, declaredIn string
	var b strings.Builder
	depth := 0
	body := false // inside the body of a function
	for line := range strings.Lines(text) {
		if m := marker.FindStringSubmatch(line); m != nil {
			header = ""
			for _, h := range []string{verbsHeader, cmHeader} {
				if strings.HasSuffix(filepath.ToSlash(m[1]), "/"+h) {
					header = h
				}
			}
			continue
		}
		for _, c := range line {
			if strings.TrimSpace(b.String()) == "" {
				declaredIn = header
			}
			switch c {
			case '{':
				if depth == 0 {
					body = isFunction(b.String())
				}
				depth++
			case '}':
				depth--
			}
			if !body || depth == 0 && c != '}' {
				b.WriteRune(c)
			}
			if depth == 0 && (c == ';' || c == '}' && body) {
				d.add(declaredIn, b.String(), body)
				b.Reset()
				body = false
			}
		}
	}
	return d
}

// clean removes attributes and needless spaces.
func clean(text string) string {
	return strings.TrimSpace(spaces.ReplaceAllString(attribute.ReplaceAllString(text, ""), " "))
}

// isFunction reports whether a brace after the text begins the body of a function.
func isFunction(text string) bool { return strings.HasSuffix(clean(text), ")") }

func (d *declared) add(header, text string, inline bool) {
	text = clean(strings.TrimSuffix(clean(text), ";"))
	if header == "" || text == "" {
		return
	}
	if m := enumName.FindStringSubmatch(text); m != nil {
		e := enum{header: header, name: m[1]}
		inside := text[strings.Index(text, "{")+1 : strings.LastIndex(text, "}")]
		for _, v := range strings.Split(inside, ",") {
			if m := valueName.FindStringSubmatch(v); m != nil {
				e.values = append(e.values, m[1])
			}
		}
		d.enums = append(d.enums, e)
		return
	}
	if strings.HasPrefix(text, "typedef ") || !strings.HasSuffix(text, ")") || strings.Contains(text, "{") {
		return
	}
	m := named.FindStringSubmatchIndex(text)
	if m == nil {
		return
	}
	d.functions = append(d.functions, function{
		header: header, name: text[m[2]:m[3]], inline: inline, result: strings.TrimSpace(text[:m[2]]),
		params: strings.TrimSpace(text[m[1] : len(text)-1]),
	})
}
