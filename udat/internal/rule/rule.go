// Package rule records which rules of the DAT specification the tests prove, for the conformance
// table.
//
// A rule is proven where the assertion stands and when it has run: a test calls [Proves] right
// after the assertion, in the same block. A test that finds out as it runs which rules it meets (a
// random one) keeps a [Ledger]. Records of a test that fails or skips, whole or in a part, do not
// count: the table is made of the records and of the suite's log.
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

// outEnv names the environment variable with the file that records are appended to. Without it
// nothing is recorded.
const outEnv = "GODAT_RULES_OUT"

// Proves records that the assertions just before it prove the rules, if the test passes. The device
// is the second part of the test's name.
func Proves(t testing.TB, ids ...string) {
	t.Helper()
	NewLedger(t).Proves(ids...)
}

// Ledger collects the rules that a test has shown so far, each with the number of times. It may be
// used by several goroutines at once.
type Ledger struct {
	mu    sync.Mutex
	shown map[string]int
}

// NewLedger returns the ledger of a test: what it holds when the test has passed is recorded.
func NewLedger(t testing.TB) *Ledger {
	l := &Ledger{shown: map[string]int{}}
	t.Cleanup(func() { l.record(t) })
	return l
}

// Proves records that an assertion that has just run proves the rules.
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
