package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

func (a *app) compare(args []string) error {
	f := a.flags("compare", "OLD NEW",
		"Compare the medians of two JSON documents, case by case. "+
			"Status 3 if a figure is worse by more than the threshold.")
	text := f.String("threshold", "5%", "change that counts, in percent of the old figure")
	if err := parse(f, args, 2, "two documents, OLD and NEW"); err != nil {
		return err
	}
	threshold, err := strconv.ParseFloat(strings.TrimSuffix(*text, "%"), 64)
	if err != nil || threshold < 0 || threshold > 1000 {
		return usagef("--threshold %q: must be a percentage from 0%% to 1000%%", *text)
	}
	before, err := result.ReadFile(f.Arg(0))
	if err != nil {
		return err
	}
	after, err := result.ReadFile(f.Arg(1))
	if err != nil {
		return err
	}
	c := result.Compare(before, after, threshold)
	if len(c.Changes) == 0 {
		return errors.New("the two documents have no case in common")
	}
	report.Comparison(a.stdout, &c, before, after, threshold)
	if c.Worse() > 0 {
		return errMissed
	}
	return nil
}

func (a *app) report(args []string) error {
	var o outputs
	f := a.flags("report", "DOCUMENT",
		"Write a JSON document in other forms; without a flag the tables, on standard output.")
	const to = " to this file, - for standard output"
	f.StringVar(&o.html, "html", "", "a page with plots, that opens without a network,"+to)
	f.StringVar(&o.csv, "csv", "", "a row per run,"+to)
	f.StringVar(&o.markdown, "markdown", "", "the tables for a page,"+to)
	f.BoolVar(&o.perftest, "perftest", false, "the columns of perftest's programs, on standard output")
	f.BoolVar(&o.gbits, "report-gbits", false, "with --perftest: Gb/sec instead of MiB/sec")
	if err := parse(f, args, 1, "a document"); err != nil {
		return err
	}
	d, err := result.ReadFile(f.Arg(0))
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
	if f.NFlag() == 0 || o.perftest {
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
