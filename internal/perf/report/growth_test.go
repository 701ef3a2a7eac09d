package report

import (
	"bytes"
	"io"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// The time for a report grows with the number of runs, not with its square.
func TestGrowth(t *testing.T) {
	few, many := *document(), *document()
	for len(many.Runs) < 4*len(few.Runs) {
		many.Runs = append(many.Runs, few.Runs...)
	}
	for name, write := range map[string]func(io.Writer, *result.Document) error{
		"table": func(w io.Writer, d *result.Document) error {
			table := NewTable(w, d.Cases())
			for i := range d.Runs {
				table.Run(&d.Runs[i])
			}
			table.Close()
			return nil
		},
		"HTML": HTML, "CSV": CSV,
	} {
		cost := func(d *result.Document) float64 {
			return testing.AllocsPerRun(1, func() {
				var b bytes.Buffer
				assert.NilError(t, write(&b, d))
			})
		}
		a, b := cost(&few), cost(&many)
		assert.Assert(t, b < 5*a, "%s: %g allocations of %d runs, %g of %d", name, a, len(few.Runs), b, len(many.Runs))
	}
}
