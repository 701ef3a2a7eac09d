package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/result"
)

func (a *app) server() *cobra.Command {
	c := &cobra.Command{
		Use: "server", Short: "serve clients until interrupted",
		Long: "Serve clients until interrupted, up to --max-clients at the same time. The clients decide what is measured.",
		Example: `  datperf server
  datperf server --device mlx5_0 --bind 10.0.0.1 --max-clients 4 --max-memory 1G
  datperf server --secret /etc/datperf.secret --prometheus :9101`,
	}
	f := c.Flags()
	device := deviceFlag(c,
		"verbs `device`, or its IP address, or tcp (default: the one that a client's connection came to, or the first "+
			"active one)")
	gid := gidFlag(f, "")
	numa := numaFlag(c)
	var control controlFlags
	control.register(f)
	var over tlsFlags
	over.register(f)
	bind := f.String("bind", "", "local `address` to listen on (default: all)")
	cpu := f.Int("cpu", 0, "pin the measuring loops to this `processor`")
	maxClients := f.Int("max-clients", engine.DefaultMaxClients,
		"serve up to this `number` of clients at the same time; more are refused")
	maxMemory := f.String("max-memory", "",
		"memory for the cases of all clients, for example 512M; cases beyond it are refused "+
			"(default 4G, or half of the memory of this process if less)")
	allowMesh := f.Bool("allow-mesh", false,
		"measure to another server when a client asks for it (datperf mesh); needs --secret")
	prometheus := f.String("prometheus", "", "serve metrics for Prometheus on this `address`, for example :9100, "+
		"at /metrics, and at /ready whether one more client can be served")
	c.RunE = func(*cobra.Command, []string) error {
		if secret, err := control.check(); err != nil {
			return err
		} else if *allowMesh && secret == nil {
			return usagef("--allow-mesh needs --secret: else anybody could turn this host on others")
		}
		if *maxClients < 1 || *maxClients > 1<<20 {
			return usagef("--max-clients %d: must be from 1 to %d", *maxClients, 1<<20)
		}
		anywhere, err := anyNode(*numa)
		if err != nil {
			return err
		}
		config, err := over.config("")
		if err != nil {
			return err
		}
		s := &engine.Server{Setup: engine.Setup{Device: *device, GID: gid, TLS: config, AnyNode: anywhere},
			MaxClients: *maxClients}
		if *allowMesh {
			s.DialPeer = control.dial
		}
		if *maxMemory != "" {
			var err error
			if s.MaxMemory, err = result.ParseMemory(*maxMemory, 1<<50); err != nil {
				return usagef("--max-memory: %w", err)
			}
			if s.MaxMemory < engine.LeastMaxMemory {
				return usagef("--max-memory %s: no case needs so little; the least is %dM", *maxMemory, engine.LeastMaxMemory>>20)
			}
		}
		if f.Changed("cpu") {
			if err := engine.CheckCPU(*cpu); err != nil {
				return &usageError{err}
			}
			s.CPU = cpu
		}
		return a.serve(s, *bind, *prometheus, &control)
	}
	return c
}

func (a *app) serve(s *engine.Server, bind, prometheus string, control *controlFlags) (err error) {
	var mu sync.Mutex
	s.Version = buildVersion()
	s.Log = func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(a.stdout, time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), text)
	}
	facts, err := s.Check()
	if err != nil {
		return err
	}
	if facts.Fabric == "mem" {
		return fmt.Errorf("%s: a server needs a verbs device (%s), or --device tcp at both ends; mem0 is inside one "+
			"process, where datperf local measures it", facts.Device, facts.Chosen)
	}
	if prometheus != "" {
		write := func(w io.Writer) error { return writeStats(w, s.Stats()) }
		stop, err := servePrometheus(prometheus, write, s.Ready, a.stderr)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	ln, err := control.listen(bind)
	if err != nil {
		return err
	}
	why := ""
	if s.Device == "" {
		why = ", because " + facts.Chosen + ", unless a client comes by another device's address"
	}
	s.Log(fmt.Sprintf("datperf %s serves on %v; %s (%s)%s", s.Version, ln.Addr(), facts.Device, facts.Detail, why))
	a.finish.orderly.Store(true)
	if err := s.Serve(a.ctx, ln); err != nil {
		return err
	}
	if a.ctx.Err() != nil {
		s.Log("interrupted, all clients are told")
	}
	return nil
}
