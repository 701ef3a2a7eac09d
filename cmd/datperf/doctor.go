package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/doctor"
	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/udat"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "find out why RDMA does or does not work here",
		Long: "Check everything that RDMA needs on this host, say what is wrong and what to do, " +
			"and exchange messages over every active device.",
		RunE: func(*cobra.Command, []string) error {
			findings := doctor.Examine()
			for _, p := range udat.Providers() {
				if p.Active {
					findings = append(findings, a.tryDevice(p.Name))
				}
			}
			for _, x := range findings {
				fmt.Fprintf(a.stdout, "%-4s %s\n", x.Level, x.What)
				if x.Advice != "" {
					fmt.Fprintf(a.stdout, "     what to do: %s\n", x.Advice)
				}
			}
			if doctor.Worst(findings) == doctor.Fail {
				return errors.New("not everything works, see FAIL above")
			}
			return nil
		},
	}
}

// tryDevice exchanges verified messages over a device, with both ends in this process.
func (a *app) tryDevice(name string) doctor.Finding {
	var p planFlags
	p.register(&cobra.Command{})
	p.base.Iters, p.base.Verify, p.sizes = 100, true, "4K"
	p.tests = []string{result.Send, result.Write, result.Read}
	plan, err := p.plan()
	if err == nil {
		_, err = engine.Local(a.ctx, &engine.Client{Device: name, Version: buildVersion()}, nil, plan)
	}
	if err != nil {
		advice := "see the findings above"
		if errors.Is(err, os.ErrPermission) {
			advice = "permissions of /dev/infiniband"
		}
		return doctor.Finding{Level: doctor.Fail, What: fmt.Sprintf("%s: sending through it and back failed: %v", name, err),
			Advice: advice}
	}
	return doctor.Finding{Level: doctor.OK,
		What: name + ": sends, RDMA writes and RDMA reads through it and back arrive intact"}
}
