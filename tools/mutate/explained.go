package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// explanations say why mutants may survive, by what they are.
type explanations map[[3]string]string

func keyOf(m Mutant) [3]string { return [3]string{m.File, m.Func, m.What()} }

// readExplained reads lines of file, function, change and reason, separated by tabs; # starts a comment.
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
			return nil, fmt.Errorf("%s:%d: must be file, function, change and reason, separated by tabs", path, i+1)
		}
		e[[3]string{f[0], f[1], f[2]}] = f[3]
	}
	return e, nil
}

func (e explanations) of(m Mutant) (string, bool) {
	why, ok := e[keyOf(m)]
	return why, ok
}

// unknown lists the explanations of mutants that the sources no longer give.
func (e explanations) unknown(dir string) []string {
	there := map[[3]string]bool{}
	for _, t := range targets {
		src, err := os.ReadFile(filepath.Join(dir, t.file))
		if err != nil {
			continue
		}
		list, _ := Mutants(t.file, src, t.only)
		for _, m := range list {
			there[keyOf(m)] = true
		}
	}
	var stale []string
	for k := range e {
		if !there[k] {
			stale = append(stale, strings.Join(k[:], " "))
		}
	}
	return stale
}

// resultLog keeps results over several runs of the tool.
type resultLog struct {
	file    *os.File
	mu      sync.Mutex
	results map[[3]string][2]string
}

func openLog(path string) (*resultLog, error) {
	l := &resultLog{results: map[[3]string][2]string{}}
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
			l.results[[3]string{f[0], f[1], f[2]}] = [2]string{f[3], f[4]}
		}
	}
	return l, lines.Err()
}

func (l *resultLog) known(m Mutant) (verdict, string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.results[keyOf(m)]
	return verdict(r[0]), r[1], ok
}

// forget makes a survivor unknown. It is false for others.
func (l *resultLog) forget(m Mutant) bool {
	k := keyOf(m)
	survivor := l.results[k][0] == string(survived)
	if survivor {
		delete(l.results, k)
	}
	return survivor
}

func (l *resultLog) add(m Mutant, v verdict, by string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := keyOf(m)
	l.results[k] = [2]string{string(v), by}
	if l.file == nil {
		return nil
	}
	_, err := fmt.Fprintf(l.file, "%s\t%s\t%s\t%s\t%s\t%d\n", k[0], k[1], k[2], v, strings.ReplaceAll(by, "\t", " "), m.Line)
	return err
}

func (l *resultLog) close() {
	if l.file != nil {
		l.file.Close()
	}
}
