package report

import (
	"fmt"
	"strings"
)

// MarkdownTable writes a table. The columns with the indices right to last-1 are aligned to the
// right, the others to the left; the first column is 0.
func MarkdownTable(b *strings.Builder, titles []string, right, last int, rows [][]string) {
	fmt.Fprintf(b, "| %s |\n|%s%s%s\n", strings.Join(titles, " | "), strings.Repeat("---|", right),
		strings.Repeat("--:|", last-right), strings.Repeat("---|", len(titles)-last))
	for _, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
}

// Escape makes a text fit into a cell.
func Escape(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }
