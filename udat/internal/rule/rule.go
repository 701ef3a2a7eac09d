// Package rule records which rules of the DAT specification the tests prove, for the conformance table.
package rule

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// OutEnv names the environment variable with the file that records are appended to. Without it nothing is recorded.
const OutEnv = "GODAT_RULES_OUT"

// Proves says that the assertions made so far in the test show the rules. Call it right after them. A record is
// written only if the test passes. The device is the second part of the test's name, as suites name their subtests.
func Proves(t testing.TB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if id == "" || strings.ContainsAny(id, " \t\n") {
			t.Fatalf("rule %q is no rule ID", id)
		}
	}
	out := os.Getenv(OutEnv)
	if out == "" {
		return
	}
	name := t.Name()
	device := "-"
	if parts := strings.Split(name, "/"); len(parts) > 1 {
		device = parts[1]
	}
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return
		}
		f, err := os.OpenFile(out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			t.Errorf("rule records: %v", err)
			return
		}
		defer f.Close()
		for _, id := range ids {
			fmt.Fprintf(f, "%s\t%s\t%s\n", id, device, name)
		}
	})
}
