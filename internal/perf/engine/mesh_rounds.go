package engine

import "github.com/godat/godat/internal/perf/result"

// route is a measurement from one host to another. The fields are the indices of the hosts in
// Mesh.Hosts.
type route struct{ from, to int }

// step is a set of routes that are measured at the same time.
type step []route

// stepsOf returns the steps of a pattern between n hosts. Each step has at most atOnce routes. If
// atOnce is 0, there is no such limit. In a step of Pairs, each host is in at most one route. In
// a step of Incast, all routes have the same server.
func stepsOf(pattern string, n, atOnce int) (all []step) {
	add := func(one step) {
		for atOnce > 0 && len(one) > atOnce {
			all, one = append(all, one[:atOnce]), one[atOnce:]
		}
		if len(one) > 0 {
			all = append(all, one)
		}
	}
	if pattern == result.Incast {
		for to := range n {
			var one step
			for from := range n {
				if from != to {
					one = append(one, route{from, to})
				}
			}
			add(one)
		}
		return all
	}
	for _, one := range tournament(n) {
		add(one)
		add(one.reversed())
	}
	return all
}

func (s step) reversed() step {
	back := make(step, len(s))
	for i, r := range s {
		back[i] = route{r.to, r.from}
	}
	return back
}

// tournament returns the rounds of a round-robin tournament by the circle method: every two hosts
// meet once, and no host is in two pairs of a round. The last host stays in place while the others
// rotate. With an odd number of hosts the last place is empty, and the host paired with it rests.
func tournament(n int) (rounds []step) {
	places := n + n%2
	for r := range places - 1 {
		var one step
		for i := range places / 2 {
			a, b := (r+i)%(places-1), (r-i+places-1)%(places-1)
			if i == 0 {
				b = places - 1
			}
			if b < n {
				one = append(one, route{min(a, b), max(a, b)})
			}
		}
		rounds = append(rounds, one)
	}
	return rounds
}
