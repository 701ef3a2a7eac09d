package report

import (
	"fmt"
	"strings"
)

// MarkdownTable writes a table. The columns from index right to last-1 are aligned to the right,
// the others to the left. Indices begin at 0.
func MarkdownTable(b *strings.Builder, titles []string, right, last int, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s%s%s\n", strings.Join(titles, " | "), strings.Repeat("---|", right),
		strings.Repeat("--:|", last-right), strings.Repeat("---|", len(titles)-last))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// Escape returns s in a form for a cell of a table: each | is escaped, and each newline becomes a
// space.
func Escape(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
