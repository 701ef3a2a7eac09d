package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/engine"
)

// IDs of the groups of commands in the help.
const measuring, results, host = "measure", "results", "host"

// The map wanted says what the value of a flag must be. The key is the name of the flag's type.
var wanted = map[string]string{
	"bool": "true or false", "int": "a whole number", "int64": "a whole number",
	"intSlice": "a whole number, or several with commas between them",
	"rate":     "a number of operations, or of bits with their unit: 500kb/s, 20Mb/s, 1.5Gb/s",
	"float64":  "a number", "duration": "a time with its unit, for example 10s or 50us",
}

// commands returns the root command, with all commands below it.
func (a *app) commands() *cobra.Command {
	root := &cobra.Command{
		Use:     "datperf",
		Short:   "measure an RDMA fabric",
		Long:    "datperf measures an RDMA fabric: latency, bandwidth and message rate.",
		Version: fmt.Sprintf("%s, protocol %d", buildVersion(), engine.Protocol),
		Example: `  datperf server                          on one host
  datperf client HOST                     on the other: latency of 2-byte sends
  datperf client HOST -m bw -s 2-1M       bandwidth by message size
  datperf local                           without a second host
  datperf doctor                          why RDMA does or does not work here`,
		SuggestionsMinimumDistance: 2,
		SilenceErrors:              true,
		SilenceUsage:               true,
		PersistentPreRunE:          func(c *cobra.Command, _ []string) error { return checkGiven(c.Flags()) },
		RunE: func(c *cobra.Command, _ []string) error {
			fmt.Fprint(a.stderr, c.UsageString(), "\n")
			return usagef("no command given")
		},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := "datperf help lists them"
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "did you mean " + near[0] + "?"
			}
			return usagef("unknown command %q; %s", args[0], hint)
		},
	}
	root.SetArgs(a.args)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetVersionTemplate("datperf {{.Version}}\n")
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		var bad *pflag.InvalidValueError
		if errors.As(err, &bad) {
			kind := bad.GetFlag().Value.Type()
			want := wanted[kind]
			if errors.Is(err, strconv.ErrRange) {
				want = "a number nearer to 0"
			}
			if _, ours := errors.AsType[*strconv.NumError](err); ours || kind == "duration" || kind == "rate" {
				err = fmt.Errorf("--%s %q: must be %s", bad.GetFlag().Name, bad.GetValue(), want)
			}
		}
		return usagef("%w (%s --help lists the flags)", err, c.CommandPath())
	})
	cobra.AddTemplateFunc("flagsByGroup", a.flagsByGroup)
	root.AddGroup(&cobra.Group{ID: measuring, Title: "Measure:"}, &cobra.Group{ID: results, Title: "Results:"},
		&cobra.Group{ID: host, Title: "This host:"})
	add := func(group string, all ...*cobra.Command) {
		for _, c := range all {
			c.GroupID = group
			c.Flags().SortFlags = false
			if c.Args == nil {
				c.Args = checkArgs
			}
		}
		root.AddCommand(all...)
	}
	add(measuring, a.server(), a.client(), a.local(), a.mesh(), a.perftest())
	add(results, a.report(), a.compare())
	add(host, a.doctor())
	add("", a.man())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" { // cobra's command answers an unknown shell with its help
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(*cobra.Command, []string) error {
				return usagef("datperf completion needs the name of a shell: bash, fish, powershell or zsh")
			}
		}
		if c.Name() == "help" { // cobra's help command answers an unknown command with the help of the root
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, _ := root.Find(args); found == root && len(rest) > 0 {
					return root.Args(root, rest)
				}
				return nil
			}
		}
	}
	return root
}

// man returns the command that writes the manual pages, for ci/deb.sh.
func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "write the manual pages into FOLDER", Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			c.Root().DisableAutoGenTag = true
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "1", Source: "datperf " + buildVersion()}, args[0])
		},
	}
}
