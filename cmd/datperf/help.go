package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/godat/godat/udat"
)

// checkArgs checks the number of arguments against the names in the command's use line. A name in
// brackets is optional. A name with dots stands for any number of arguments.
func checkArgs(c *cobra.Command, args []string) error {
	names := strings.Fields(c.Use)[1:]
	least, most := len(names), len(names)
	for _, name := range names {
		if name[0] == '[' {
			least--
		}
		if strings.Contains(name, "...") {
			most = len(args)
		}
	}
	switch {
	case len(args) >= least && len(args) <= most:
		return nil
	case len(names) == 0:
		return usagef("%s takes no arguments, %q was given", c.CommandPath(), args[0])
	}
	plural := "s"
	if len(args) == 1 {
		plural = ""
	}
	return usagef("%s needs %s, not %d argument%s", c.CommandPath(), strings.Join(names, " and "), len(args), plural)
}

const groupKey = "group"

// addFlags calls the function register with a new flag set, and adds the flags of this set to the
// command. In the command's help these flags are one group.
func addFlags(c *cobra.Command, group string, register func(*pflag.FlagSet)) {
	f := pflag.NewFlagSet(group, pflag.ContinueOnError)
	f.SortFlags = false
	register(f)
	f.VisitAll(func(one *pflag.Flag) { one.Annotations = map[string][]string{groupKey: {group}} })
	c.Flags().AddFlagSet(f)
}

// The function computed marks flags whose default depends on other values. The help prints no
// default for such a flag; its usage text describes the default.
func computed(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		one := f.Lookup(name)
		one.DefValue = map[bool]string{true: "[]", false: "0"}[strings.HasSuffix(one.Value.Type(), "Slice")]
	}
}

// deviceFlag adds --device. The shell can complete its value to a device of this host.
func deviceFlag(c *cobra.Command, usage string) *string {
	v := c.Flags().String("device", "", usage)
	complete := func(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		for _, p := range udat.Providers() {
			names = append(names, p.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	_ = c.RegisterFlagCompletionFunc("device", complete)
	return v
}

// flagsByGroup formats the flags for the help, by group. The flags without a group come first.
func (a *app) flagsByGroup(f *pflag.FlagSet) string {
	groups := []string{""}
	sets := map[string]*pflag.FlagSet{}
	f.VisitAll(func(one *pflag.Flag) {
		group := strings.Join(one.Annotations[groupKey], "")
		if sets[group] == nil {
			sets[group] = pflag.NewFlagSet(group, pflag.ContinueOnError)
			sets[group].SortFlags = false
		}
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
		sets[group].AddFlag(one)
	})
	width := 0 // unlimited
	if file, ok := a.stdout.Writer.(*os.File); ok {
		width, _, _ = term.GetSize(int(file.Fd()))
	}
	var b strings.Builder
	for _, group := range groups {
		if sets[group] == nil {
			continue
		}
		title := "Flags"
		if group != "" {
			title = group
		}
		fmt.Fprintf(&b, "\n%s:\n%s", title, sets[group].FlagUsagesWrapped(width))
	}
	return b.String()
}

const usageTemplate = `Usage:{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{else}}
  {{.UseLine}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}
{{$all := .Commands}}{{range $group := .Groups}}
{{.Title}}{{range $all}}{{if eq .GroupID $group.ID}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{if .HasAvailableSubCommands}}
Other commands:{{range $all}}{{if and (eq .GroupID "") .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}
{{end}}{{flagsByGroup .LocalFlags}}{{if .HasAvailableSubCommands}}
{{.CommandPath}} COMMAND --help lists a command's flags.
{{end}}`
