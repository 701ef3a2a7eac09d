package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The texts above and below the tables of the page.
var (
	//go:embed promises.md
	promises string
	//go:embed defects.md
	defects string
)

const soakImage = "![What a soak has in use over its time](soak.svg)"

func writeResults(path string, results []result) error {
	b, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// writePage writes the page from the files of results. It prints the numbers of passed and failed
// results. Cells without a result are copied from the page old, which may be nil.
func writePage(path string, files []string, old *oldPage) error {
	var results []result
	var fabrics []string
	if old != nil {
		fabrics = old.fabrics
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var some []result
		if err := json.Unmarshal(b, &some); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, res := range some {
			if !slices.Contains(fabrics, res.Fabric) {
				fabrics = append(fabrics, res.Fabric)
			}
		}
		results = append(results, some...)
	}
	var b strings.Builder
	b.WriteString(promises)
	group, passed, failed := "", 0, 0
	var broken []result
	var shown []string // fabrics that the group has rows or reasons for
	for i := range scenarios {
		s := &scenarios[i]
		if s.group != group {
			group = s.group
			shown = slices.DeleteFunc(slices.Clone(fabrics), func(f string) bool {
				return !slices.ContainsFunc(scenarios, func(s scenario) bool {
					return s.group == group && (s.rounds[kindOf(f)][0] > 0 || s.why[kindOf(f)] != "")
				})
			})
			fmt.Fprintf(&b, "\n## %s\n\n| Scenario | Promise |", strings.ToUpper(group[:1])+group[1:])
			for _, f := range shown {
				fmt.Fprintf(&b, " %s |", f)
			}
			fmt.Fprintf(&b, " Within |\n|---|---|%s---|\n", strings.Repeat("---|", len(shown)))
		}
		fmt.Fprintf(&b, "| %s | %s |", s.name, s.promise)
		for _, f := range shown {
			at := slices.IndexFunc(results, func(res result) bool {
				return res.Fabric == f && res.Group == s.group && res.Name == s.name
			})
			if at < 0 {
				fmt.Fprintf(&b, " %s |", orDash(old.cell(s, f)))
				continue
			}
			res := results[at]
			if len(res.Problems) > 0 {
				failed++
				broken = append(broken, res)
				fmt.Fprintf(&b, " **FAILED** in %d |", res.Rounds)
				continue
			}
			passed++
			fmt.Fprintf(&b, " %d, %v%s |", res.Rounds, res.Worst.Round(time.Millisecond), lacking(res.Without))
		}
		fmt.Fprintf(&b, " %v |\n", s.within)
	}
	if figure := filepath.Join(filepath.Dir(path), "soak.svg"); drawSoak(figure, results) || old != nil && old.soak {
		b.WriteString("\n" + soakImage + "\n")
	}
	b.WriteString(defects)
	if len(broken) > 0 {
		b.WriteString("\n## Failed\n\n")
		for _, res := range broken {
			b.WriteString(folded(fmt.Sprintf("- %s, %s: %s", res.Fabric, res.Name, res.Problems[0])))
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return err
	}
	fmt.Printf("faults: %d passed, %d failed\n", passed, failed)
	if failed > 0 || passed == 0 {
		return errors.New("a promise is broken, or nothing ran")
	}
	return nil
}

// lacking returns the part of a cell that lists what a device lacks.
func lacking(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return ", without " + strings.Join(parts, ", ")
}

// folded returns the text of a list item in lines of up to 100 columns.
func folded(text string) string {
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len([]rune(word)) > 100:
			b.WriteString("\n  ")
			column = 2
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len([]rune(word))
	}
	return b.String() + "\n"
}

// kindOf returns the kind of the fabric that has this name on the page.
func kindOf(fabric string) string {
	device, hosts, _ := strings.Cut(fabric, ", ")
	switch {
	case hosts == "":
		return strings.TrimRight(device, "0123456789")
	case device == "tcp":
		return "tcphosts"
	}
	return "cable"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
