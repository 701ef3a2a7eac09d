package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

func (a *app) compare() *cobra.Command {
	c := &cobra.Command{
		Use: "compare OLD NEW", Short: "compare two JSON documents",
		Long: "Compare the medians of two JSON documents, case by case. " +
			"Status 3 if a figure is worse by more than the threshold.",
		Example: "  datperf compare monday.json tuesday.json --threshold 10%",
	}
	text := c.Flags().String("threshold", "5%", "`change` that counts, in percent of the old figure")
	c.RunE = func(_ *cobra.Command, args []string) error {
		threshold, err := strconv.ParseFloat(strings.TrimSuffix(*text, "%"), 64)
		if err != nil || threshold < 0 || threshold > 1000 {
			return usagef("--threshold %q: must be a percentage from 0%% to 1000%%", *text)
		}
		before, err := result.ReadFile(args[0])
		if err != nil {
			return err
		}
		after, err := result.ReadFile(args[1])
		if err != nil {
			return err
		}
		if before.Mesh != nil || after.Mesh != nil {
			return errors.New("compare has no figures of a mesh; datperf report prints its matrices")
		}
		found := result.Compare(before, after, threshold)
		if len(found.Changes) == 0 {
			return errors.New("the two documents have no case in common")
		}
		report.Comparison(a.stdout, &found, before, after, threshold)
		if found.Worse() > 0 {
			return errMissed
		}
		return nil
	}
	return c
}

func (a *app) report() *cobra.Command {
	var o outputs
	c := &cobra.Command{
		Use: "report DOCUMENT", Short: "write a JSON document as a page, tables, CSV or Markdown",
		Long:    "Write a JSON document in other forms; without a flag the tables, on standard output.",
		Example: "  datperf report out.json --html out.html",
	}
	o.registerForms(c.Flags())
	o.registerPerftest(c.Flags())
	c.RunE = func(_ *cobra.Command, args []string) error {
		d, err := result.ReadFile(args[0])
		if err != nil {
			return err
		}
		if _, err := o.check(nil); err != nil {
			return err
		}
		files, err := o.open(a.stdout)
		if err != nil {
			return err
		}
		switch {
		case d.Mesh != nil && c.Flags().NFlag() == 0:
			report.Mesh(a.stdout, d.Mesh)
		case c.Flags().NFlag() == 0 || o.perftest:
			show := newDisplay(a.stdout, nil, &o, 1)
			w := show.watcher()
			w.Begin(&d.Client, &d.Server)
			for i := range d.Runs {
				w.Run(&d.Runs[i])
			}
			show.close()
		}
		return files.write(d)
	}
	return c
}
