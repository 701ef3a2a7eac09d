package result

import (
	"fmt"
	"slices"
	"strings"
)

// OneOf returns an error that names the flag and its values, unless value is one of them. The
// argument value must be the text of the flag and not a field of a Case, because a Case contains ""
// for the values rc and cm.
func OneOf(flag, value string, of []string) error {
	if slices.Contains(of, value) {
		return nil
	}
	hint := ""
	if near := Nearest(value, of); near != "" {
		hint = "; did you mean " + near + "?"
	}
	return fmt.Errorf("--%s %q: must be one of %s%s", flag, value, strings.Join(of, ", "), hint)
}

// Nearest returns the name that is most similar to a mistyped one, or "" if no name is similar. A
// name is similar if at most 1 + len(typed)/3 edits turn the typed letters into the name.
func Nearest(typed string, names []string) (best string) {
	if len(typed) > maxTyped {
		return ""
	}
	least := 1 + len(typed)/3
	for _, name := range names {
		if n := edits(typed, name); n <= least && n < len(name) && (best == "" || n < least) {
			best, least = name, n
		}
	}
	return best
}

// maxTyped limits the length of a mistyped name, because the name may come from a peer.
const maxTyped = 64

// edits returns the least number of insertions, deletions, replacements and swaps of neighboring
// letters that turn a into b.
func edits(a, b string) int {
	var before, last []int // the two previous rows
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
