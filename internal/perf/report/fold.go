package report

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxColumns is the largest width of a line for people, in columns.
const maxColumns = 80

// fold breaks a text at spaces into lines of at most maxColumns columns. Each line ends with a
// newline, and each line after the first begins with indent. A word that does not fit into a line
// is broken.
func fold(text, indent string) string {
	var b strings.Builder
	begin := text[:len(text)-len(strings.TrimLeft(text, " "))]
	line := begin
	empty := true
	flush := func() {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		line, empty = indent, true
	}
	for _, word := range strings.Fields(text) {
		space := " "
		if empty {
			space = ""
		}
		if !empty && utf8.RuneCountInString(line+space+word) > maxColumns {
			flush()
			space = ""
		}
		for utf8.RuneCountInString(line+word) > maxColumns {
			runes := []rune(word)
			n := maxColumns - utf8.RuneCountInString(line)
			line += string(runes[:n])
			word = string(runes[n:])
			flush()
		}
		line += space + word
		empty = false
	}
	flush()
	return b.String()
}

// foldList folds a comma-separated list. It breaks no item that is shorter than half a line.
func foldList(items []string, indent string) string {
	const glue = "\x00"
	kept := make([]string, len(items))
	for i, one := range items {
		if kept[i] = one; utf8.RuneCountInString(one) < maxColumns/2 {
			kept[i] = strings.ReplaceAll(one, " ", glue)
		}
	}
	return strings.ReplaceAll(fold(indent+strings.Join(kept, ", "), indent), glue, " ")
}

// fit shortens a text to a width. It rounds a number to fewer digits, and cuts off the end of any
// other text.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return string([]rune(text)[:width-1]) + "~"
	}
	_, decimals, _ := strings.Cut(text, ".")
	for digits := len(decimals) - 1; digits >= 0; digits-- {
		if s := number(v, digits); len(s) <= width {
			return s
		}
	}
	for digits := 2; digits > 0; digits-- {
		if s := strconv.FormatFloat(v, 'e', digits, 64); len(s) <= width {
			return s
		}
	}
	return strconv.FormatFloat(v, 'e', 0, 64)
}
