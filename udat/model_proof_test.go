package udat_test

import "strings"

// proofs counts, for each rule, the checks of the model that showed it: TestModel records those rules and no others.
type proofs map[string]int

// shows notes that a check which has just passed shows these rules, separated by spaces.
func (w *world) shows(rules string) {
	for _, id := range strings.Fields(rules) {
		w.proven[id]++
	}
}

// showsIf notes it only if cond holds: the check had something to look at.
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
