package main

import (
	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/result"
)

func (a *app) local() *cobra.Command {
	c := &cobra.Command{
		Use: "local", Short: "measure with both ends in this process",
		Long: "Measure with both ends in this process: on mem0, the fabric inside the process, " +
			"or through a verbs device and back.",
		Example: "  datperf local --device mem0 -t all -m all --verify",
	}
	cpu := c.Flags().IntSlice("cpu", nil, "pin the client's loop to this `processor`; of two, the server's to the second")
	return a.measure(c, func(cl *engine.Client, plan engine.Plan, _ []string) (*result.Document, error) {
		if err := checkCPUs(*cpu, 2); err != nil {
			return nil, err
		}
		cl.CPU = nth(*cpu, 0)
		return engine.Local(a.ctx, cl, nth(*cpu, 1), plan)
	})
}

func nth(list []int, n int) *int {
	if n < len(list) {
		return &list[n]
	}
	return nil
}

func checkCPUs(cpus []int, most int) error {
	if len(cpus) > most {
		return usagef("--cpu: %s given, %d can be used here", result.Count(len(cpus), "processor"), most)
	}
	for _, cpu := range cpus {
		if err := engine.CheckCPU(cpu); err != nil {
			return &usageError{err}
		}
	}
	return nil
}
