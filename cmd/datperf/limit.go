package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/engine"
)

func (a *app) limit() *cobra.Command {
	c := &cobra.Command{
		Use: "limit", Short: "find out how many objects of each kind the adapter can create",
		Long: "Create objects of each kind until the adapter refuses or --most is reached, " +
			"free them, and check that one can be created again.",
	}
	device := deviceFlag(c, "`device` (default: the first active verbs device, else mem0)")
	kinds := c.Flags().StringSlice("kind", engine.LimitKinds, "`kinds` of objects")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(engine.LimitKinds, cobra.ShellCompDirectiveNoFileComp))
	most := c.Flags().Int("most", 1000, "stop at this `number` of a kind")
	c.RunE = func(*cobra.Command, []string) error {
		if *most < 1 || *most > 1<<20 {
			return usagef("--most %d: must be from 1 to %d", *most, 1<<20)
		}
		for _, kind := range *kinds {
			if !slices.Contains(engine.LimitKinds, kind) {
				return usagef("--kind %q: must be one of %s", kind, strings.Join(engine.LimitKinds, ", "))
			}
		}
		for _, kind := range *kinds {
			r, err := engine.Limits(a.ctx, *device, kind, *most)
			if err != nil {
				return fmt.Errorf("%s, after %d: %w", kind, r.Count, err)
			}
			end := "as many as were asked for"
			if r.Refusal != nil {
				end = "then: " + r.Refusal.Error()
			}
			fmt.Fprintf(a.stdout, "%-4s %8d  %s; all freed\n", kind, r.Count, end)
		}
		return nil
	}
	return c
}
