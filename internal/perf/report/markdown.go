package report

import (
	"fmt"
	"strings"
)

// MarkdownTable writes a table. Columns right to last-1 are aligned to the right, the others to the
// left. The first column has the index 0.
func MarkdownTable(b *strings.Builder, titles []string, right, last int, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s%s%s\n", strings.Join(titles, " | "), strings.Repeat("---|", right),
		strings.Repeat("--:|", last-right), strings.Repeat("---|", len(titles)-last))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// Escape returns a text for a cell, with | escaped and without newlines.
func Escape(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
