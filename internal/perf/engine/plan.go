package engine

import (
	"errors"
	"fmt"

	"github.com/godat/godat/internal/perf/result"
)

// Plan is what a client measures: cases, each repeated.
type Plan struct {
	Cases   []result.Case
	Repeats int // at least 1
}

// Validate refuses a plan with a case that cannot be run, before anything runs.
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
