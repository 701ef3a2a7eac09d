// Command conformance writes the table of DAT rules and the tests that prove them. It reads the
// list of rules, and the records and logs that the test suites have written. It fails if a rule
// that the committed table shows as proven is no longer proven. It also fails if a rule is not
// proven on a fabric and LIMITS gives no reason.
//
//	conformance RULES LIMITS TABLE RECORDS...
//
// LIMITS lists the rules that cannot be proven on some fabrics. Each line has the fabrics, the
// rules, and the reason, which the table shows.
//
// In the same folder as each file of records, NAME.tsv, there must be the log of its suite,
// NAME.log, the output of go test -v. A record counts only if, according to the log, its test has
// passed and no part of the test has failed or was skipped. If a fabric has no records, its column
// of the table stays as it is.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// fabrics lists the columns of the table. A device belongs to the fabric whose name is a prefix of
// the device's name.
var fabrics = []string{"mem", "tcp", "rxe", "siw"}

// headings contains the titles of the columns.
var headings = map[string]string{"mem": "mem0", "tcp": "tcp", "rxe": "rxe", "siw": "siw"}

// ruleLine is one line of the list of rules: ID and meaning. If no test of a Go library can show
// the rule, notApplicable says why.
type ruleLine struct {
	id, meaning, notApplicable string
}

// proof maps each fabric to the set of tests that prove a rule on this fabric.
type proof map[string]map[string]bool

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: conformance RULES LIMITS TABLE RECORDS...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(rulesPath, limitsPath, tablePath string, records []string) error {
	rules, err := readRules(rulesPath)
	if err != nil {
		return err
	}
	limits, err := readLimits(limitsPath, rules)
	if err != nil {
		return err
	}
	proofs, unknown, err := readRecords(rules, records)
	if err != nil {
		return err
	}
	before, err := readTable(tablePath)
	if err != nil {
		return err
	}
	keepOthers(proofs, before)
	text, wrong := table(rules, limits, proofs)
	if len(unknown) > 0 {
		return fmt.Errorf("tests prove rules that the list does not have: %s", strings.Join(unknown, ", "))
	}
	var lost []string
	for id, p := range before {
		for fabric := range p {
			if len(proofs[id][fabric]) == 0 {
				lost = append(lost, id+" on "+headings[fabric])
			}
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		wrong = append(wrong, "no longer proven: "+strings.Join(lost, ", "))
	}
	if err := os.WriteFile(tablePath, []byte(text), 0o666); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	fmt.Println(lines[len(lines)-1])
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

func eachLine(path string, do func(n int, fields []string) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		if sc.Text() == "" || strings.HasPrefix(sc.Text(), "#") {
			continue
		}
		if err := do(n, strings.Split(sc.Text(), "\t")); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return sc.Err()
}

func readRules(path string) ([]ruleLine, error) {
	var rules []ruleLine
	seen := map[string]bool{}
	err := eachLine(path, func(_ int, f []string) error {
		r := ruleLine{id: f[0]}
		if len(f) < 2 || len(f) > 3 || f[1] == "" {
			return fmt.Errorf("want ID, meaning and perhaps n/a with the reason, between tabs")
		}
		r.meaning = f[1]
		if len(f) == 3 {
			reason, ok := strings.CutPrefix(f[2], "n/a: ")
			if !ok || reason == "" {
				return fmt.Errorf("%s: the third field must be \"n/a: reason\"", r.id)
			}
			r.notApplicable = reason
		}
		if seen[r.id] {
			return fmt.Errorf("%s stands here twice", r.id)
		}
		seen[r.id] = true
		rules = append(rules, r)
		return nil
	})
	return rules, err
}

// readLimits reads the reasons why rules cannot be proven on some fabrics. The key of a reason is
// "ID fabric".
func readLimits(path string, rules []ruleLine) (map[string]string, error) {
	limits := map[string]string{}
	err := eachLine(path, func(_ int, f []string) error {
		if len(f) != 3 || f[2] == "" {
			return fmt.Errorf("want fabrics, rules and the reason, between tabs")
		}
		for _, id := range strings.Fields(f[1]) {
			if !slices.ContainsFunc(rules, func(r ruleLine) bool { return r.id == id }) {
				return fmt.Errorf("the list of rules has no %s", id)
			}
			for _, fabric := range strings.Fields(f[0]) {
				if !slices.Contains(fabrics, fabric) || limits[id+" "+fabric] != "" {
					return fmt.Errorf("%s: fabric %s is unknown or stands here twice", id, fabric)
				}
				limits[id+" "+fabric] = f[2]
			}
		}
		return nil
	})
	return limits, err
}

func readRecords(rules []ruleLine, paths []string) (proofs map[string]proof, unknown []string, err error) {
	proofs = map[string]proof{}
	for _, r := range rules {
		proofs[r.id] = proof{}
	}
	for _, path := range paths {
		o, err := readLog(strings.TrimSuffix(path, ".tsv") + ".log")
		if err != nil {
			return nil, nil, err
		}
		err = eachLine(path, func(_ int, f []string) error {
			if len(f) != 3 {
				return fmt.Errorf("want rule, device and test, between tabs")
			}
			if why := o.doubt(f[2]); why != "" {
				fmt.Fprintf(os.Stderr, "conformance: %s of %s does not count: %s\n", f[0], f[2], why)
				return nil
			}
			p, ok := proofs[f[0]]
			if !ok {
				if !duty(f[0]) && !slices.Contains(unknown, f[0]) {
					unknown = append(unknown, f[0])
				}
				return nil
			}
			name, _, _ := strings.Cut(f[2], "/")
			device := f[1]
			if device == "-" {
				device = "mem0" // the test needs no fabric
			}
			for _, fabric := range fabrics {
				if !strings.HasPrefix(device, fabric) {
					continue
				}
				if p[fabric] == nil {
					p[fabric] = map[string]bool{}
				}
				p[fabric][name] = true
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return proofs, unknown, nil
}

// duty reports whether an ID names not a rule but a gap (GAP-), a mapping (V-), or a conflict of
// sources (C-). The table does not count these IDs, because other rules state what the library does
// about each of them.
func duty(id string) bool {
	for _, prefix := range []string{"GAP-", "V-", "C-"} {
		if strings.HasPrefix(id, prefix) {
			return true
		}
	}
	return false
}

// readTable reads an earlier table, whatever its columns. It returns the tests of the rules that
// the table shows as proven.
func readTable(path string) (map[string]proof, error) {
	before := map[string]proof{}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	var columns []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
		}
		if len(cells) < 3 {
			continue
		}
		if cells[1] == "Rule" {
			columns = cells
			continue
		}
		for i, name := range columns[:min(len(columns), len(cells))] {
			for _, fabric := range fabrics {
				if cells[i] != "proven" || name != headings[fabric] {
					continue
				}
				if before[cells[1]] == nil {
					before[cells[1]] = proof{}
				}
				before[cells[1]][fabric] = map[string]bool{}
				for _, test := range strings.Split(cells[len(columns)-2], ", ") {
					before[cells[1]][fabric][test] = true
				}
			}
		}
	}
	return before, nil
}

// The function ran returns the set of fabrics that have proofs.
func ran(proofs map[string]proof) map[string]bool {
	list := map[string]bool{}
	for _, p := range proofs {
		for fabric := range p {
			list[fabric] = true
		}
	}
	return list
}

// keepOthers adds the proofs of an earlier table for those fabrics that have not run this time.
func keepOthers(proofs, before map[string]proof) {
	have := ran(proofs)
	for id, p := range before {
		for fabric, tests := range p {
			if !have[fabric] && proofs[id] != nil {
				proofs[id][fabric] = tests
			}
		}
	}
}

// table returns the text of the table. For the fabrics that have run, it also returns what is
// wrong: rules that have neither a proof nor a reason, and rules that have both.
func table(rules []ruleLine, limits map[string]string, proofs map[string]proof) (text string, wrong []string) {
	var b strings.Builder
	var silent, vain []string
	have := ran(proofs)
	b.WriteString("# Conformance\n\nMade by `make conformance`; do not edit. What each rule says in full is the DAT " +
		"1.2 specification's affair: the\n" +
		"second column is a reminder. A rule is proven on a fabric if a test that names it has " +
		"passed there; tests that need no\n" +
		"fabric count for mem0. Elsewhere stands why it cannot be.\n\n")
	b.WriteString("| Rule | Meaning |")
	for _, fabric := range fabrics {
		fmt.Fprintf(&b, " %s |", headings[fabric])
	}
	fmt.Fprintf(&b, " Tests |\n|---|---|%s---|\n", strings.Repeat("---|", len(fabrics)))
	counts := map[string]int{}
	na, missing := 0, 0
	for _, r := range rules {
		cells := make([]string, len(fabrics))
		var tests []string
		for i, fabric := range fabrics {
			limit := limits[r.id+" "+fabric]
			if len(proofs[r.id][fabric]) == 0 {
				cells[i] = limit
				if limit == "" && r.notApplicable == "" && have[fabric] {
					silent = append(silent, r.id+" on "+headings[fabric])
				}
				continue
			}
			if limit != "" {
				vain = append(vain, r.id+" on "+headings[fabric])
			}
			cells[i] = "proven"
			counts[fabric]++
			for t := range proofs[r.id][fabric] {
				if !slices.Contains(tests, t) {
					tests = append(tests, t)
				}
			}
		}
		slices.Sort(tests)
		shown := strings.Join(tests, ", ")
		switch {
		case len(tests) > 0:
		case r.notApplicable != "":
			na++
			shown = "n/a: " + r.notApplicable
		default:
			missing++
			shown = "missing"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.id, strings.ReplaceAll(r.meaning, "|", "\\|"),
			strings.Join(cells, " | "), shown)
	}
	fmt.Fprintf(&b, "\nconformance: %d rules", len(rules))
	for _, fabric := range fabrics {
		fmt.Fprintf(&b, ", %s %d proven", headings[fabric], counts[fabric])
	}
	fmt.Fprintf(&b, ", %d n/a, %d missing\n", na, missing)
	if len(silent) > 0 {
		wrong = append(wrong, "not proven, and nothing says why: "+strings.Join(silent, ", "))
	}
	if len(vain) > 0 {
		wrong = append(wrong, "proven, though it is said that it cannot be: "+strings.Join(vain, ", "))
	}
	return b.String(), wrong
}
