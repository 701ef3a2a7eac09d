package main

import (
	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/result"
)

// nearest returns the flag name that is most similar to a mistyped name, or "" if no flag name is
// similar.
func nearest(f *pflag.FlagSet, name string) string {
	var names []string
	f.VisitAll(func(one *pflag.Flag) {
		if !one.Hidden {
			names = append(names, one.Name)
		}
	})
	return result.Nearest(name, names)
}
