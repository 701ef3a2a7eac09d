package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/godat/godat/udat"
)

const (
	fabricVerbs = "verbs"
	fabricMem   = "mem"
)

// choice is the device that an end uses, and why.
type choice struct {
	udat.ProviderInfo
	why string
}

// choose takes the device that was named; or else the one with the address that the peer was reached by; or else the
// first active verbs device; or else the fabric inside this process.
func choose(name string, local netip.Addr) (choice, error) {
	all := udat.Providers()
	if name != "" {
		for _, p := range all {
			if p.Name == name || p.Addr == name && p.Fabric == fabricVerbs {
				return choice{p, "it was named"}, nil
			}
		}
		return choice{}, fmt.Errorf("--device %q: %w", name, noDevice(all))
	}
	for _, p := range all {
		if p.Fabric == fabricVerbs && local.IsValid() && p.Addr == local.Unmap().WithZone("").String() {
			return choice{p, fmt.Sprintf("%v is its address", local.Unmap())}, nil
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
		return choice{best, "it is the only active verbs device"}, nil
	case found > 1:
		return choice{best, fmt.Sprintf("it is the first of %d active verbs devices", found)}, nil
	}
	for _, p := range all {
		if p.Fabric == fabricMem {
			return choice{p, "there is no active verbs device: " + whyNone(all)}, nil
		}
	}
	return choice{}, noDevice(all)
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

// verbsPort splits a provider's name into verbs device and port: ports but the first are "mlx5_0/2".
func (c *choice) verbsPort() (string, uint8) {
	device, port, _ := strings.Cut(c.Name, "/")
	if n, err := strconv.ParseUint(port, 10, 8); err == nil {
		return device, uint8(n)
	}
	return device, 1
}
