package engine

import (
	"errors"
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// Plan is a list of cases. Each case is measured Repeats times.
type Plan struct {
	Cases   []result.Case
	Repeats int // at least 1
}

// Validate returns an error if the plan contains a case that cannot be run. It does not run any
// case.
func (p *Plan) Validate() error {
	if len(p.Cases) == 0 {
		return errors.New("the plan has no cases")
	}
	if p.Repeats < 1 || p.Repeats > 1000 {
		return fmt.Errorf("--repeat %d: must be from 1 to 1000", p.Repeats)
	}
	for i := range p.Cases {
		c := p.Cases[i]
		if _, _, err := fit(&c); err != nil {
			return err
		}
	}
	return nil
}
