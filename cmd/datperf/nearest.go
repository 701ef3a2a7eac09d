package main

import (
	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/result"
)

// nearest returns the flag whose name is most like a mistyped one, "" if none is.
func nearest(f *pflag.FlagSet, name string) string {
	var names []string
	f.VisitAll(func(one *pflag.Flag) {
		if !one.Hidden {
			names = append(names, one.Name)
		}
	})
	return result.Nearest(name, names)
}
