package main

import (
	"regexp"
	"strings"
)

// C files are mutated line by line. Each mutant of a C file needs its own program.

var (
	cFunction = regexp.MustCompile(`^[a-z].*?(\w+)\(`)
	cSwap     = regexp.MustCompile(`[!=]=|&&|\|\||[<>]=?| [+|&-] |\b\d+\b`)
	cSwaps    = map[string]string{"==": "!=", "!=": "==", "&&": "||", "||": "&&",
		"<": "<=", "<=": "<", ">": ">=",
		">=": ">", " + ": " - ", " - ": " + ", " | ": " & ", " & ": " | "}
	cCondition = regexp.MustCompile(`^\s*(?:if|while) \((.*)\)[ {]*$`)
	// Matches a call or an assignment, but no declaration.
	cStatement = regexp.MustCompile(`^\s*(?:\*?[\w.>-]+(?:\[[^]]*\])* [|&+-]?= .*|[\w.>-]+(?:\+\+|--)|\w+\(.*\));$`)
	cLocking   = regexp.MustCompile(`lock\(|^\s*return`)
)

// cMutants returns the mutants of a C file. Each one replaces an operator, adds one to a number,
// negates a condition, or deletes a statement of one line.
func cMutants(file, text string) (list []Mutant) {
	in, low, at := "", 0, 0
	for n, line := range strings.SplitAfter(text, "\n") {
		begin := at
		at += len(line)
		code, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "//")
		if f := cFunction.FindStringSubmatch(code); f != nil && !strings.HasSuffix(code, ";") {
			in, low = f[1], begin
			continue
		}
		if strings.HasPrefix(code, "}") {
			in = ""
		}
		if in == "" || !strings.HasPrefix(code, "\t") {
			continue
		}
		high := low + strings.Index(text[low:]+"\n}", "\n}")
		add := func(from, to int, with string) {
			list = append(list, Mutant{File: file, Func: in, Line: n + 1, Start: begin + from, End: begin + to,
				Old: code[from:to], New: with, Alone: true, Diff: diff(text, low, high, begin+from, begin+to, with)})
		}
		quoted := strings.IndexByte(code, '"')
		for _, s := range cSwap.FindAllStringIndex(code, -1) {
			old := code[s[0]:s[1]]
			switch with, ok := cSwaps[old]; {
			case quoted >= 0 && s[0] > quoted || s[0] > 0 && old == ">" && code[s[0]-1] == '-': // part of a string, or of ->
			case ok:
				add(s[0], s[1], with)
			default:
				add(s[0], s[1], old+" + 1")
			}
		}
		if c := cCondition.FindStringSubmatchIndex(code); c != nil {
			add(c[2], c[3], "!("+code[c[2]:c[3]]+")")
		}
		if cStatement.MatchString(code) && !cLocking.MatchString(code) {
			from := len(code) - len(strings.TrimLeft(code, "\t"))
			add(from, len(code), ";")
		}
	}
	return list
}
