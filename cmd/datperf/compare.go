package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

// outcomes maps each outcome of compare to the exit status.
var outcomes = map[string]int{result.Same: statusOK, result.Better: statusOK, result.Worse: statusMissed,
	result.Undecided: statusUndecided, result.Missing: statusMissing}

func (a *app) compare() *cobra.Command {
	c := &cobra.Command{
		Use: "compare OLD NEW", Short: "compare two JSON documents",
		Long: "Compare two JSON documents, case by case; of two meshes, pair by pair. " +
			"A figure is worse if every change in the 95% interval of the change is worse by more than the threshold; " +
			"an interval needs 4 runs of the case in each document (--repeat 4). " +
			"Status 0: nothing is worse. 3: a figure is worse. 4: a figure is undecided. 5: a case of OLD is missing in NEW. " +
			"The first of 3, 5 and 4 that applies counts.",
		Example: "  datperf client HOST --repeat 10 --json monday.json\n" +
			"  datperf compare monday.json tuesday.json --threshold 10%",
	}
	f := c.Flags()
	text := f.String("threshold", "5%", "`change` that counts, in percent of the old figure")
	noiseText := f.String("noise", "0%",
		"figures of fewer than 4 runs vary by this `percentage` to both sides from run to run; 0: they are undecided")
	file := f.String("json", "", "the comparison as a JSON document, to this `file`, or - for standard output")
	c.RunE = func(_ *cobra.Command, args []string) error {
		threshold, err := percentage("threshold", *text, 1000)
		if err != nil {
			return err
		}
		noise, err := percentage("noise", *noiseText, 99)
		if err != nil {
			return err
		}
		before, err := result.ReadFile(args[0])
		if err != nil {
			return err
		}
		after, err := result.ReadFile(args[1])
		if err != nil {
			return err
		}
		found := result.Compare(before, after, threshold, noise)
		found.Unlike = report.Differences(before, after)
		if len(found.Changes) == 0 {
			return errors.New("the two documents have no case in common")
		}
		if *file != "" {
			out, err := openSink(form{flag: "json", file: *file}, a.stdout)
			if err != nil {
				return err
			}
			encoder := json.NewEncoder(out)
			encoder.SetIndent("", "  ")
			if err := out.finish(encoder.Encode(&found)); err != nil {
				return fmt.Errorf("--json: %w", err)
			}
		}
		if *file != "-" {
			report.Comparison(a.stdout, &found)
		}
		if status := outcomes[found.Outcome]; status != statusOK {
			return &statusError{status}
		}
		return nil
	}
	return c
}

// percentage parses a percentage from 0 to limit, with or without "%".
func percentage(flag, text string, limit float64) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(v >= 0 && v <= limit) {
		return 0, usagef("--%s %q: must be a percentage from 0%% to %g%%", flag, text, limit)
	}
	return v, nil
}

func (a *app) report() *cobra.Command {
	var o outputs
	c := &cobra.Command{
		Use: "report DOCUMENT", Short: "write a JSON document as a page, tables or CSV",
		Long:    "Write a JSON document in other forms; without a flag the tables, on standard output.",
		Example: "  datperf report out.json --html out.html",
	}
	o.registerForms(c.Flags())
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
		case c.Flags().NFlag() > 0:
		case d.Mesh != nil:
			report.Mesh(a.stdout, d.Mesh)
		default:
			show := newDisplay(a.stdout, nil, &o, d.Cases(), 1)
			w := show.watcher()
			w.Begin(&d.Client, &d.Server)
			for i := range d.Runs {
				w.Run(&d.Runs[i])
			}
			show.table.Summary(result.Summarize(d.Runs))
			show.close()
			if d.Incomplete != nil {
				fmt.Fprintf(a.stdout, "%s\n", d.Incomplete)
			}
		}
		return files.write(d)
	}
	return c
}
