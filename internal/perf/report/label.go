package report

import (
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// label returns the name of a case's series within its plot. The name contains the layer and the
// settings that differ from their defaults. It contains neither test nor size.
func label(c *result.Case) string {
	return strings.Join(append([]string{c.Layer}, c.Unusual()...), " ")
}
