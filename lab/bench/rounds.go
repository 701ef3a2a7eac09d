package main

import (
	"fmt"
	"os"
	"slices"
	"time"
)

// The least number of rounds of a row without figures, and the largest number of rounds of any row.
const (
	fewest = 5
	most   = 200
)

// tries is the number of failures after which a series without any value is left out.
const tries = 2

// setting is a row of a table and the series that fill it.
type setting struct {
	*row
	series []series
	failed map[string]int
}

// series is a way to measure a value. The function measure also returns the command with which a
// person can measure the value.
type series struct {
	name    string
	measure func() (value float64, command string, err error)
}

// settled reports whether the row needs no further round.
func (s *setting) settled() bool {
	if len(s.series) == 0 || len(s.Rounds) >= most {
		return true
	}
	if len(s.Figures) == 0 {
		return len(s.Rounds) >= fewest
	}
	for _, f := range s.Figures {
		if s.gaveUp(f.Series) || s.gaveUp(f.Peer) {
			continue
		}
		if estimated(s.ratios(f.Series, f.Peer), enough).verdict(f.AtMost, f.Goal) == undecided {
			return false
		}
	}
	return true
}

// round measures all series once, in reverse order if reversed is true. The order alternates so
// that a drift of the machine's speed favors no series.
func (s *setting) round(reversed bool) {
	values := map[string]float64{}
	for i := range s.series {
		if reversed {
			i = len(s.series) - 1 - i
		}
		x := s.series[i]
		v, command, err := x.measure()
		if err != nil {
			s.fail(x.name, err)
			s.failed[x.name]++
			continue
		}
		values[x.name] = v
		if s.Commands[x.name] == "" {
			s.Commands[x.name] = command
		}
	}
	if len(values) > 0 {
		s.Rounds = append(s.Rounds, values)
	}
	s.series = slices.DeleteFunc(slices.Clone(s.series), func(x series) bool { return s.gaveUp(x.name) })
}

// gaveUp reports whether a series has failed so often that it is left out.
func (s *setting) gaveUp(name string) bool {
	return s.failed[name] >= tries && len(s.values(name)) == 0
}

// rounds measures the rows in turn, round by round, until all rows are settled or the time is over.
// The first round is always complete. rounds returns why it ended.
func (b *bench) rounds(settings []*setting) string {
	for _, s := range settings {
		s.failed = map[string]int{}
	}
	begin := time.Now()
	for n := 1; ; n++ {
		due := slices.DeleteFunc(slices.Clone(settings), (*setting).settled)
		if len(due) == 0 {
			return "all figures are decided"
		}
		if b.most > 0 && n > b.most {
			return fmt.Sprintf("%d rounds", b.most)
		}
		fmt.Fprintf(os.Stderr, "bench: round %d, %d rows, %v of %v\n", n, len(due),
			time.Since(begin).Round(time.Second), b.limit)
		for _, s := range due {
			if n > 1 && time.Since(begin) > b.limit {
				return "the time was over"
			}
			s.round(n%2 == 0)
		}
	}
}
