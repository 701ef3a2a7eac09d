// Package rule records which rules of the DAT specification the tests prove, for the conformance
// table.
//
// A test calls [Proves] right after an assertion, in the same block, so that the rule is recorded
// only if the assertion has run. A test that learns only at run time which rules it meets, such as
// a random one, records them in a [Ledger]. The table is made from the records and from the suite's
// log. It ignores the records of a test that failed or was skipped, or that has a subtest that
// failed or was skipped.
package rule

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// outEnv is the environment variable that names the file to append records to. If the variable is
// not set, nothing is recorded.
const outEnv = "GODAT_RULES_OUT"

// Proves records, if the test passes, that the assertions just before the call prove the rules. The
// record names the device, which is the second part of the test's name.
func Proves(t testing.TB, ids ...string) {
	t.Helper()
	NewLedger(t).Proves(ids...)
}

// Ledger counts how many times a test has shown each rule so far. It is safe for concurrent use.
type Ledger struct {
	mu    sync.Mutex
	shown map[string]int
}

// NewLedger returns an empty ledger for a test. If the test passes, the rules in the ledger are
// recorded at its end.
func NewLedger(t testing.TB) *Ledger {
	l := &Ledger{shown: map[string]int{}}
	t.Cleanup(func() { l.record(t) })
	return l
}

// Proves counts each of the rules once more. An assertion that has just run must prove them.
func (l *Ledger) Proves(ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.shown[id]++
	}
}

// Count returns how many times the rule has been shown.
func (l *Ledger) Count(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown[id]
}

func (l *Ledger) record(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.Failed() || t.Skipped() {
		return
	}
	name := t.Name()
	device := "-"
	if parts := strings.Split(name, "/"); len(parts) > 1 {
		device = parts[1]
	}
	var lines strings.Builder
	for _, id := range slices.Sorted(maps.Keys(l.shown)) {
		if id == "" || strings.ContainsAny(id, " \t\n") {
			t.Errorf("rule %q is no rule ID", id)
			return
		}
		fmt.Fprintf(&lines, "%s\t%s\t%s\n", id, device, name)
	}
	out := os.Getenv(outEnv)
	if out == "" {
		return
	}
	f, err := os.OpenFile(out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Errorf("rule records: %v", err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(lines.String()); err != nil {
		t.Errorf("rule records: %v", err)
	}
}
