package engine

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/udat"
)

const (
	fabricVerbs = "verbs"
	fabricMem   = "mem"
	fabricTCP   = "tcp"
)

// choice is the device that an end uses, and the reason why.
type choice struct {
	udat.ProviderInfo
	open string // argument for udat.Open: the device's name, or the address (Addr) that the ends use
	why  string
	gid  result.Knob // entry of the GID table to use; unset: the connection manager's choice
	tls  *tls.Config // for the connections; nil: no TLS
	near []int       // processors of the device's NUMA node, to run the loops on; nil: any
	far  bool        // this process may not run on any processor of that node
}

func byName(p udat.ProviderInfo, why string) choice {
	return choice{ProviderInfo: p, open: p.Name, why: why}
}

// byAddr returns the device that has addr among its addresses.
func byAddr(all []udat.ProviderInfo, addr netip.Addr, why string) (choice, bool) {
	addr = addr.Unmap()
	for _, p := range all {
		for _, text := range p.Addrs {
			if a, err := netip.ParseAddr(text); err == nil && (a == addr || a.WithZone("") == addr) {
				p.Addr = text
				return choice{ProviderInfo: p, open: text, why: why}, true
			}
		}
	}
	return choice{}, false
}

// choose returns the device whose name, or one of whose addresses, is the argument name. The
// argument local is the address of this end of the control connection. The name "tcp" selects the
// tcp device with that address. If name is "", choose returns the device with that address. If no
// device has that address, it returns the first active verbs device. If there is no active verbs
// device, it returns mem0.
func choose(name string, local netip.Addr) (choice, error) {
	return chooseFrom(udat.Providers(), name, local)
}

func chooseFrom(all []udat.ProviderInfo, name string, local netip.Addr) (choice, error) {
	if name != "" {
		why := "it was named"
		if one := "tcp:" + local.Unmap().String(); name == "tcp" && (local.Zone() != "" ||
			slices.ContainsFunc(all, func(p udat.ProviderInfo) bool { return p.Name == one })) {
			name, why = one, fmt.Sprintf("tcp was named, and %v is the address on the way", local.Unmap())
		}
		for _, p := range all {
			if p.Name == name {
				return byName(p, why), nil
			}
		}
		// An address that udat.Providers does not list: a link-local one, or one of 127.0.0.0/8.
		one, ok := strings.CutPrefix(name, "tcp:")
		if addr, err := netip.ParseAddr(one); ok && err == nil {
			text := addr.Unmap().String()
			return byName(udat.ProviderInfo{Name: name, Fabric: fabricTCP, Active: true, Addr: text, Addrs: []string{text},
				Detail: "RDMA over TCP (iWARP in software), one address"}, why), nil
		}
		if addr, err := netip.ParseAddr(name); err == nil {
			if c, ok := byAddr(all, addr, "its address was given"); ok {
				return c, nil
			}
		}
		return choice{}, fmt.Errorf("--device %q: %w", name, noDevice(all))
	}
	if local.IsValid() {
		if c, ok := byAddr(all, local, fmt.Sprintf("%v is its address", local.Unmap())); ok {
			return c, nil
		}
	}
	best, found := udat.ProviderInfo{}, 0
	for _, p := range all {
		if p.Fabric == fabricVerbs && p.Active {
			if found == 0 {
				best = p
			}
			found++
		}
	}
	switch {
	case found == 1:
		return byName(best, "it is the only active verbs device"), nil
	case found > 1:
		return byName(best, fmt.Sprintf("it is the first of %d active verbs devices", found)), nil
	}
	for _, p := range all {
		if p.Fabric == fabricMem {
			return byName(p, "there is no active verbs device: "+whyNone(all)), nil
		}
	}
	return choice{}, noDevice(all)
}

// useGID selects the given entry of the device's GID table, and the address in that entry.
func (c *choice) useGID(given *result.Knob) error {
	if given == nil {
		return nil
	}
	index, ok := given.Get()
	if !ok {
		return nil
	}
	if c.Fabric != fabricVerbs || strings.HasPrefix(c.Detail, "iWARP") {
		return fmt.Errorf("--gid-index %d: %s has no GID to choose", index, c.Name)
	}
	device, port := c.verbsPort()
	ctx, err := cverbs.OpenDevice(device)
	if err != nil {
		return err
	}
	defer ctx.Close()
	table, err := ctx.GIDTable()
	if err != nil {
		return err
	}
	var has []string
	for _, e := range table {
		if e.Port != port {
			continue
		}
		if e.Index == index {
			c.open, c.gid, c.Addr = c.Name, *given, e.Addr().String()
			c.why += fmt.Sprintf(", GID index %d was given", index)
			return nil
		}
		has = append(has, strconv.Itoa(e.Index))
	}
	return fmt.Errorf("--gid-index %d: %s has no such GID; it has: %s", index, c.Name, strings.Join(has, ", "))
}

// useTLS makes the device's connections go over TLS, unless config is nil.
func (c *choice) useTLS(config *tls.Config) error {
	if config == nil {
		return nil
	}
	if c.Fabric != fabricTCP {
		return fmt.Errorf("--tls-cert: %s has no TLS; use --device tcp, or omit --tls-cert, --tls-key and --tls-ca", c.Name)
	}
	c.tls = config
	c.Detail += ", TLS"
	return nil
}

func whyNone(all []udat.ProviderInfo) string {
	var down []string
	for _, p := range all {
		if p.Fabric == fabricVerbs {
			down = append(down, p.Name+" is down")
		}
	}
	if len(down) > 0 {
		return strings.Join(down, ", ")
	}
	if err := udat.WhyNoDevices(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return "this host has none"
}

func noDevice(all []udat.ProviderInfo) error {
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	text := "no such device; there are: " + strings.Join(names, ", ")
	if why := udat.WhyNoDevices(); why != nil {
		text += " (" + strings.ReplaceAll(why.Error(), "\n", "; ") + ")"
	}
	return errors.New(text)
}

// verbsPort splits the device's name into the name of the verbs device and the port. A name without
// a port, as "mlx5_0", means port 1; "mlx5_0/2" is port 2.
func (c *choice) verbsPort() (string, uint8) {
	device, port, _ := strings.Cut(c.Name, "/")
	if n, err := strconv.ParseUint(port, 10, 8); err == nil {
		return device, uint8(n)
	}
	return device, 1
}
