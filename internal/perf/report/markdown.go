package report

import (
	"fmt"
	"strings"
)

// MarkdownTable writes a table. The columns with the indices lo to hi-1 are aligned to the right,
// the others to the left. Indices begin at 0.
func MarkdownTable(b *strings.Builder, titles []string, lo, hi int, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s%s%s\n", strings.Join(titles, " | "), strings.Repeat("---|", lo),
		strings.Repeat("--:|", hi-lo), strings.Repeat("---|", len(titles)-hi))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// Escape returns s in a form for a cell of a table: each | is escaped, and each newline becomes a
// space.
func Escape(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
