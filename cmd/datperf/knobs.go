package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/result"
)

// registerKnobs adds the flags for the settings of a connection's path. They apply to both ends.
func registerKnobs(f *pflag.FlagSet, k *result.Knobs) {
	f.Var(result.KnobFlag{Knob: &k.TOS}, "tos", "IP type of service of the packets, or traffic class: DSCP << 2, 0 to 255")
	f.Var(result.KnobFlag{Knob: &k.TOS, Scale: 4, Most: 63}, "dscp", "the upper six bits of --tos, 0 to 63")
	f.Var(result.KnobFlag{Knob: &k.SL}, "sl", "service level, on RoCE the VLAN priority, 0 to 15")
	f.Var(result.KnobFlag{Knob: &k.MTU}, "mtu", "path MTU: 256, 512, 1024, 2048 or 4096")
	f.Var(result.KnobFlag{Knob: &k.Retry}, "retry",
		"how often a request without an acknowledgement is sent again, 0 to 7 (default 7, on soft-RoCE 6)")
	f.Var(result.KnobFlag{Knob: &k.Timeout}, "timeout",
		"wait for an acknowledgement: 4.096 us << N, 1 to 31, or 0 without end (default: the connection manager's)")
	f.Var(result.KnobFlag{Knob: &k.RNR}, "rnr",
		"how often a message without a receive is sent again, 0 to 6, or 7 without end (default 7)")
}

// checkKnobs returns an error if --tos and --dscp are both given, because both set the type of
// service.
func checkKnobs(f *pflag.FlagSet) error {
	if f.Changed("tos") && f.Changed("dscp") {
		return usagef("--tos and --dscp: only one of them")
	}
	return nil
}

// numaValues are the values of --numa.
var numaValues = []string{"near", "any"}

// numaFlag adds --numa, which applies to this end only.
func numaFlag(c *cobra.Command) *string {
	v := c.Flags().String("numa", "near", "`where` the measuring loops of this end run: near (on the processors of the "+
		"device's NUMA node), or any; --cpu goes before it")
	_ = c.RegisterFlagCompletionFunc("numa", cobra.FixedCompletions(numaValues, cobra.ShellCompDirectiveNoFileComp))
	return v
}

// anyNode reports whether the value of --numa is any.
func anyNode(numa string) (bool, error) {
	if err := result.OneOf("numa", numa, numaValues); err != nil {
		return false, &usageError{err}
	}
	return numa == "any", nil
}

// gidFlag adds --gid-index, which applies to this end only.
func gidFlag(f *pflag.FlagSet, short string) *result.Knob {
	k := new(result.Knob)
	f.VarP(result.KnobFlag{Knob: k, Most: 255}, "gid-index", short,
		"`entry` of this end's GID table to use, with its address (default the connection manager's choice)")
	return k
}
