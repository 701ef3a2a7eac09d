package report

import (
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// label returns the name of a case's series within its plot. The name contains the layer and the
// settings that differ from their defaults. It leaves out the test and the size.
func label(c *result.Case) string {
	return strings.Join(append([]string{c.Layer}, c.Unusual()...), " ")
}
