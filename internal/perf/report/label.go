package report

import (
	"fmt"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// label returns the name of a case's series within its plot. The name contains the layer and the
// settings that differ from their defaults. It contains neither test nor size.
func label(c *result.Case) string {
	parts := []string{c.Layer}
	if c.Lossy() {
		parts = append(parts, c.Transport)
	}
	if c.Poll != result.Busy {
		parts = append(parts, c.Poll)
	}
	if c.QPs > 1 {
		parts = append(parts, fmt.Sprintf("%d QPs", c.QPs))
	}
	if c.Threads > 1 {
		parts = append(parts, fmt.Sprintf("%d threads", c.Threads))
	}
	if c.Connect != "" {
		parts = append(parts, c.Connect)
	}
	if n := c.ChosenDepth(); n > 0 {
		parts = append(parts, fmt.Sprintf("depth %d", n))
	}
	if c.Batch > 1 {
		parts = append(parts, fmt.Sprintf("batch %d", c.Batch))
	}
	if c.SRQ {
		parts = append(parts, "SRQ")
	}
	if c.Direction != result.Out {
		parts = append(parts, c.Direction)
	}
	if c.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%g/s", c.Rate))
	}
	return strings.Join(parts, " ")
}
