package udat_test

import "strings"

// shows records that a check which has just passed shows these rules, separated by spaces.
func (w *world) shows(rules string) { w.proven.Proves(strings.Fields(rules)...) }

// showsIf does so only if cond is true, that is, if the check had something to check.
func (w *world) showsIf(cond bool, rules string) {
	if cond {
		w.shows(rules)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
