package docs

import (
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestSecurity: each row of a table of SECURITY.md with a column Test names a test in it, and each
// test that the page names exists.
func TestSecurity(t *testing.T) {
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	page := read("SECURITY.md")
	rows, inTable := 0, false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case strings.HasSuffix(line, "| Test |"):
			inTable = true
		case inTable && !strings.HasPrefix(line, "|-"):
			rows++
			cells := strings.Split(strings.Trim(line, "|"), "|")
			assert.Check(t, named.MatchString(cells[len(cells)-1]), "this row names no test: %s", line)
		}
	}
	assert.Check(t, rows > 40, "only %d rows", rows)
	for _, m := range named.FindAllStringSubmatch(page, -1) {
		assert.Check(t, strings.Contains(tests(), "func "+m[1]+"("), "there is no %s", m[1])
	}
}
