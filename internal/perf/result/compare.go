package result

import (
	"fmt"
	"time"
)

// ComparisonSchema is the format of a Comparison as JSON.
const ComparisonSchema = "datperf-compare/1"

// Verdicts of a Change, and outcomes of a Comparison.
const (
	Worse     = "worse"     // certainly worse, by more than the threshold
	Better    = "better"    // certainly better, by more than the threshold
	Same      = "same"      // certainly not worse by more than the threshold, but not certainly better by more than it
	Undecided = "undecided" // not enough information; Change.Why says what is lacking
	Missing   = "missing"   // outcome: the new document lacks cases of the old one
)

// Estimate is a figure and an interval that contains the figure's true value with 95% confidence.
type Estimate struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low,omitempty"` // 0, with High also 0: the interval is unknown
	High   float64 `json:"high,omitempty"`
	Runs   int     `json:"runs"`
}

func (e *Estimate) known() bool { return e.High > 0 }

// Change is the difference of one metric of one case between two documents.
type Change struct {
	From    string   `json:"from,omitempty"` // hosts of a mesh's pair: From measures to To
	To      string   `json:"to,omitempty"`
	Case    Case     `json:"settings"`
	Name    string   `json:"case"` // name of the case for people
	Metric  string   `json:"metric"`
	Old     Estimate `json:"old"`
	New     Estimate `json:"new"`
	Percent float64  `json:"change_percent"`               // median over all pairs of an old and a new run
	Least   float64  `json:"change_percent_low,omitempty"` // the true change is between Least and Most
	Most    float64  `json:"change_percent_high,omitempty"`
	Verdict string   `json:"verdict"`
	Why     string   `json:"why,omitempty"` // why the verdict is Undecided
}

// Known reports whether both figures are known. If not, Percent is 0 and has no meaning.
func (ch *Change) Known() bool { return ch.Old.Median > 0 && ch.New.Runs > 0 }

// Comparison is the result of Compare.
type Comparison struct {
	Schema    string   `json:"schema"`
	Threshold float64  `json:"threshold_percent"`
	Outcome   string   `json:"outcome"`
	Changes   []Change `json:"changes"`
	Missing   []string `json:"missing_in_new"` // names of cases; for a pair that failed, with its error
	Added     []string `json:"missing_in_old"`
	Unlike    []string `json:"unlike,omitempty"` // facts in which the two documents differ
}

// Count returns the number of changes with the verdict.
func (c *Comparison) Count(verdict string) (n int) {
	for i := range c.Changes {
		if c.Changes[i].Verdict == verdict {
			n++
		}
	}
	return n
}

// group contains the summaries of all runs of one case. In a mesh, it contains those of one case
// between one pair.
type group struct {
	groupKey
	summary map[string]sample
	failed  string // why the pair has no run; empty if it has one
}

type groupKey struct {
	from, to string
	c        Case
}

func (k *groupKey) name() string {
	if k.from == "" {
		return k.c.Name()
	}
	return fmt.Sprintf("%s -> %s, %s", k.from, k.to, k.c.Name())
}

// groups returns the groups of a document in the document's order, and an index of the groups by
// key.
func (d *Document) groups() (all []*group, index map[groupKey]*group) {
	index = map[groupKey]*group{}
	of := func(k groupKey) *group {
		g := index[k]
		if g == nil {
			g = &group{groupKey: k, summary: map[string]sample{}}
			index[k] = g
			all = append(all, g)
		}
		return g
	}
	for _, s := range samplesOf(d.Runs) {
		of(groupKey{c: s.Case.Key()}).summary[s.Metric] = s
	}
	if d.Mesh == nil {
		return all, index
	}
	for i := range d.Mesh.Matrices {
		m := &d.Mesh.Matrices[i]
		for j := range m.Pairs {
			p := &m.Pairs[j]
			g := of(groupKey{p.From, p.To, m.Case.Key()}) // not p.Run.Case, which a server may have adapted
			if p.Run == nil {
				g.failed = p.Error
				continue
			}
			for _, s := range samplesOf([]Run{*p.Run}) {
				g.summary[s.Metric] = s
			}
		}
	}
	return all, index
}

// Compare compares two documents, case by case and pair by pair. The change of a figure is the
// median over all pairs of an old and a new run, and has an interval that contains the true change
// with 95% confidence. It takes 4 runs in each document. With fewer runs each figure is known plus
// and minus noise, a percentage; if noise is 0, the interval is unknown. A figure is better or
// worse only if every change in the interval exceeds threshold, a percentage.
func Compare(before, after *Document, threshold, noise float64) Comparison {
	c := Comparison{Schema: ComparisonSchema, Threshold: threshold, Changes: []Change{}, Missing: []string{},
		Added: []string{}}
	old, then := before.groups()
	now, current := after.groups()
	for _, was := range old {
		switch is := current[was.groupKey]; {
		case was.failed != "": // nothing to compare with
		case is == nil:
			c.Missing = append(c.Missing, was.name())
		case is.failed != "":
			c.Missing = append(c.Missing, was.name()+": "+is.failed)
		default:
			c.compare(was, is, noise)
		}
	}
	for _, is := range now {
		if was := then[is.groupKey]; is.failed == "" && (was == nil || was.failed != "") {
			c.Added = append(c.Added, is.name())
		}
	}
	switch {
	case c.Count(Worse) > 0:
		c.Outcome = Worse
	case len(c.Missing) > 0:
		c.Outcome = Missing
	case c.Count(Undecided) > 0:
		c.Outcome = Undecided
	case c.Count(Better) > 0:
		c.Outcome = Better
	default:
		c.Outcome = Same
	}
	return c
}

// compare adds the changes of one case to c.
func (c *Comparison) compare(was, is *group, noise float64) {
	for i := range Metrics {
		m := &Metrics[i]
		past, had := was.summary[m.Name]
		now, has := is.summary[m.Name]
		if !had {
			continue // the old document had too few samples for this metric
		}
		ch := Change{From: was.from, To: was.to, Case: is.c, Name: was.name(), Metric: m.Name, Verdict: Undecided,
			Old: past.estimate(noise), New: now.estimate(noise)}
		switch {
		case !has:
			ch.Why = "the new document has too few samples for it"
		case past.values[0] <= 0:
			ch.Why = "an old figure is 0"
		default:
			if ch.judge(m, past.values, now.values, c.Threshold, noise); past.Short || now.Short {
				ch.Verdict, ch.Why = Undecided, fmt.Sprintf("measured for less than %v", time.Duration(TooShort))
			}
		}
		c.Changes = append(c.Changes, ch)
	}
}

func (s *Summary) estimate(noise float64) Estimate {
	e := Estimate{Median: s.Median, Low: s.Low, High: s.High, Runs: s.Runs}
	if !e.known() && noise > 0 {
		e.Low, e.High = s.Median*(1-noise/100), s.Median*(1+noise/100)
	}
	return e
}

// percent returns the change by a factor, in percent.
func percent(factor float64) float64 { return (factor - 1) * 100 }

// judge sets the change and its verdict. If the verdict is Undecided, it sets Why.
func (ch *Change) judge(m *Metric, before, after []float64, threshold, noise float64) {
	factor, low, high, ok := ratio(before, after)
	ch.Percent = percent(factor)
	if !ok && noise > 0 {
		wide := (1 + noise/100) / (1 - noise/100)
		low, high, ok = factor/wide, factor*wide, true
	}
	if !ok {
		advice := "measure with --repeat 4 or more, or give --noise"
		if ch.From != "" { // a mesh does not repeat
			advice = "give --noise"
		}
		ch.Why = fmt.Sprintf("%d and %d runs have no interval: %s", ch.Old.Runs, ch.New.Runs, advice)
		return
	}
	ch.Least, ch.Most = percent(low), percent(high)
	gain, best := ch.Least, ch.Most // change of the quality: positive is better
	if m.Better < 0 {
		gain, best = -ch.Most, -ch.Least
	}
	switch {
	case best < -threshold:
		ch.Verdict = Worse
	case gain > threshold:
		ch.Verdict = Better
	case gain >= -threshold:
		ch.Verdict = Same
	default:
		ch.Why = "the range is too wide to tell: measure more runs, or longer ones"
	}
}
