package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// explanations maps the keys of mutants that may survive to the reasons.
type explanations map[key]string

// readExplained reads the explanations. Each line contains file, function, code with the change in
// it, and reason, separated by tabs. A line that begins with # is a comment.
func readExplained(path string) (explanations, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	e := explanations{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 4 || f[3] == "" {
			return nil, fmt.Errorf("%s:%d: must be file, function, code and reason, separated by tabs", path, i+1)
		}
		e[key{f[0], f[1], f[2]}] = f[3]
	}
	return e, nil
}

// unknown lists the explanations for which there is no mutant.
func (e explanations) unknown(mutants []Mutant) []string {
	there := map[key]bool{}
	for _, m := range mutants {
		there[m.key()] = true
	}
	var stale []string
	for k := range e {
		if !there[k] {
			stale = append(stale, strings.Join(k[:], " "))
		}
	}
	slices.Sort(stale)
	return stale
}

// resultLog keeps the results of several runs of this command.
type resultLog struct {
	file    *os.File
	mu      sync.Mutex
	results map[key][2]string
}

func openLog(path string) (*resultLog, error) {
	l := &resultLog{results: map[key][2]string{}}
	if path == "" {
		return l, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	l.file = f
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if f := strings.Split(lines.Text(), "\t"); len(f) == 6 {
			l.results[key{f[0], f[1], f[2]}] = [2]string{f[3], f[4]}
		}
	}
	return l, lines.Err()
}

func (l *resultLog) known(m Mutant) (verdict, string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.results[m.key()]
	return verdict(r[0]), r[1], ok
}

// forget removes a mutant from the log if the mutant has survived. It reports whether it has
// removed the mutant.
func (l *resultLog) forget(m Mutant) bool {
	k := m.key()
	survivor := l.results[k][0] == string(survived)
	if survivor {
		delete(l.results, k)
	}
	return survivor
}

func (l *resultLog) add(m Mutant, v verdict, by string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := m.key()
	l.results[k] = [2]string{string(v), by}
	if l.file == nil {
		return nil
	}
	_, err := fmt.Fprintf(l.file, "%s\t%s\t%s\t%s\t%s\t%d\n", k[0], k[1], k[2], v, strings.ReplaceAll(by, "\t", " "),
		m.Line)
	return err
}

func (l *resultLog) close() {
	if l.file != nil {
		l.file.Close()
	}
}
