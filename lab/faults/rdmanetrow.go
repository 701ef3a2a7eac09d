package main

import "time"

// rdmanetRow returns a row of the group rdmanet. The parameter rounds contains the numbers of
// rounds by kind of fabric. The parameter notOn contains the kinds without rounds, with the
// reasons, in the form that leaveOut accepts.
func rdmanetRow(name, promise string, act func(*round) error, rounds map[string][2]int, notOn ...string) scenario {
	s := scenario{group: "rdmanet", name: name, promise: promise, act: act, alone: true, within: 2 * time.Minute,
		rounds: rounds, why: map[string]string{}}
	s.leaveOut(notOn)
	if rounds["loop"][0] > 0 {
		s.why["mem"] = inOneProcess
	}
	return s
}

// slow returns the row with a longer time limit, for rows that take minutes on an emulated machine.
func (s scenario) slow() scenario {
	s.within = 10 * time.Minute
	return s
}

const inOneProcess = "connects within one process"

// The map often contains the numbers of rounds for rows that take little time. The map seldom
// contains those for rows that take much time. All these rows need two processes.
var (
	often  = map[string][2]int{"loop": {20, 500}, "tcp": {20, 500}, "rxe": {4, 50}, "siw": {4, 20}}
	seldom = map[string][2]int{"loop": {4, 50}, "tcp": {4, 50}, "rxe": {2, 20}, "siw": {2, 10}}
)

// withMem returns a copy of the map rounds, to which it adds an entry for the kind of fabric mem.
func withMem(mem, memLong int, rounds map[string][2]int) map[string][2]int {
	all := map[string][2]int{"mem": {mem, memLong}}
	for kind, n := range rounds {
		all[kind] = n
	}
	return all
}

const dies = "Read and Write of the other end fail, none sees the end of the stream; what has come is right; " +
	"the next connection works"
