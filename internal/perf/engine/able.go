package engine

import (
	"fmt"
	"strings"

	"github.com/godat/godat/internal/perf/doctor"
	"github.com/godat/godat/internal/perf/result"
)

// compatible returns an error if one of the two devices cannot run the plan.
func compatible(plan Plan, client, server *result.Facts) error {
	if what, advice := doctor.Apart(client, server); what != "" {
		return fmt.Errorf("%s; %s", what, advice)
	}
	if client.TLS != server.TLS {
		with, without := "client", "server"
		if server.TLS {
			with, without = without, with
		}
		return fmt.Errorf("the %s has --tls-cert, the %s has not: both ends need it, or neither", with, without)
	}
	for i := range plan.Cases {
		c := &plan.Cases[i]
		for _, end := range []struct {
			who string
			f   *result.Facts
		}{{"client", client}, {"server", server}} {
			if err := able(c, end.who, end.f); err != nil {
				return err
			}
		}
	}
	return nil
}

// able returns an error if one end's device cannot run the case. The parameter who is "client" or
// "server".
func able(c *result.Case, who string, f *result.Facts) error {
	iwarp := strings.HasPrefix(f.Detail, "iWARP")
	knobs := map[string][]string{fabricMem: {"retry", "rnr"}, fabricTCP: {"retry", "rnr", "tos"}}[f.Fabric]
	if iwarp || c.Layer == result.TCP {
		knobs = []string{"tos"}
	}
	if err := c.Knobs.Able(knobs, f.MTU, fmt.Sprintf("the %s's device %s", who, f.Device)); err != nil {
		return err
	}
	switch {
	case c.Layer == result.TCP && f.TLS:
		return fmt.Errorf("--layer tcp: it has no TLS, and the %s has --tls-cert; use --layer udat", who)
	case c.Layer == result.TCP:
		return nil // of the device it uses the address only
	case c.Layer == result.Cverbs && f.Fabric != fabricVerbs:
		return fmt.Errorf("--layer cverbs: the %s's device %s has no verbs beneath it; use --layer udat, or a verbs device",
			who, f.Device)
	case c.Connect == result.Exchange && iwarp:
		return fmt.Errorf("--connect exchange: the %s's device %s is iWARP, which needs the connection manager", who,
			f.Device)
	case c.Lossy() && iwarp:
		return fmt.Errorf("--transport %s: the %s's device %s is iWARP, which is reliable and connected", c.Transport, who,
			f.Device)
	case c.Transport == result.UD && f.MTU > 0 && c.Size > f.MTU:
		return fmt.Errorf("--size %d with --transport ud: a datagram is one packet; the MTU of the %s's device %s is %d",
			c.Size, who, f.Device, f.MTU)
	case c.Atomic() && f.Atomics == noAtomics:
		return fmt.Errorf("--test %s: the %s's device %s has no atomics", c.Test, who, f.Device)
	case c.Test == result.WriteImm && iwarp:
		return fmt.Errorf("--test %s: iWARP, as of the %s's device %s, has no immediate data with RDMA write", c.Test, who,
			f.Device)
	case f.MaxMessage > 0 && c.Size > f.MaxMessage:
		return fmt.Errorf("--size %d: the largest message of the %s's device %s is %d", c.Size, who, f.Device, f.MaxMessage)
	case f.MaxQueueDepth > 0 && max(c.Depth, c.RxDepth) > f.MaxQueueDepth:
		return fmt.Errorf("--depth %d, --rx-depth %d: a queue of the %s's device %s holds %d", c.Depth, c.RxDepth, who,
			f.Device, f.MaxQueueDepth)
	}
	return nil
}

// readDepth returns the read depth that both devices support. If only one device reports a read
// depth, readDepth returns that one. If neither device reports one, it returns 0.
func readDepth(a, b *result.Facts) int {
	switch {
	case a.MaxReadDepth == 0:
		return b.MaxReadDepth
	case b.MaxReadDepth == 0:
		return a.MaxReadDepth
	}
	return min(a.MaxReadDepth, b.MaxReadDepth)
}
