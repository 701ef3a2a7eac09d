package udat

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/godat/godat/udat/internal/fabric"
)

// ProviderInfo is an adapter that Open can open on this host now.
type ProviderInfo struct {
	Name         string   // what Open takes
	Fabric       string   // "verbs", or "mem" for the fabric inside this process
	Addr         string   // the IP address that it listens on; empty where it has none
	Addrs        []string // all its IP addresses, that Open takes too, the best first; empty for the fabric inside this process
	Active       bool     // its port is up
	Detail       string   // for people: transport, address, why
	MajorVersion int      // of uDAPL: 1
	MinorVersion int      // 2
	ThreadSafe   bool     // always
}

// Providers lists every adapter found on this host, and the names that RegisterProvider has added for them; there is no
// dat.conf to maintain. The fabric inside this process is always there. WhyNoDevices says why others are not.
//
// Implements: dat_registry_list_providers.
func Providers() []ProviderInfo {
	list, _ := survey()
	return list
}

// survey asks all fabrics what there is, and why there is not more.
func survey() ([]ProviderInfo, error) {
	var list []ProviderInfo
	var why []error
	for _, f := range fabrics() {
		devices, err := f.Devices()
		if err != nil {
			why = append(why, err)
		}
		for _, d := range devices {
			list = append(list, providerInfo(d))
		}
	}
	return append(list, registry.list(list)...), errors.Join(why...)
}

func providerInfo(d fabric.DeviceInfo) ProviderInfo {
	p := ProviderInfo{Name: d.Name, Fabric: d.Fabric, Active: d.Active, Detail: d.Detail, MajorVersion: providerMajor, MinorVersion: providerMinor, ThreadSafe: true}
	if d.Addr.IsValid() {
		p.Addr = d.Addr.String()
	}
	for _, a := range d.Addrs {
		p.Addrs = append(p.Addrs, a.String())
	}
	return p
}

// answers tells whether Open takes name for the adapter.
func (p *ProviderInfo) answers(name string) bool {
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.Unmap().String()
	}
	return p.Name == name || p.Addr == name || slices.Contains(p.Addrs, name)
}

// WhyNoDevices says why a fabric of this host has no devices to list, nil if there is nothing to say.
//
// Extension.
func WhyNoDevices() error {
	_, why := survey()
	return why
}

// maxProviderName is the length of a name at the most, in bytes.
const maxProviderName = 255

// maxProviders is the number of names at the most; only tests change it.
var maxProviders = 1024

// registry holds the names that RegisterProvider has added.
var registry providerRegistry

type providerRegistry struct {
	mu    ranked[rankRegistry]
	names map[string]*registeredName
}

// registeredName is a registered name.
type registeredName struct {
	device string
	opts   []Option
	opens  int // adapters that are open by the name; guarded by the registry's lock
}

// RegisterProvider adds a name that Open then takes for the device (or address) with opts, to which Open's own options add.
// Whether the device exists is only asked when it is opened. Errors: ProviderAlreadyRegistered for a name that is
// registered or a device's own; InvalidParameter for an empty name or device, a name of more than 255 bytes, or one that
// stands for another registered name; InsufficientResources beyond 1024 names.
//
// Implements: dat_registry_add_provider.
func RegisterProvider(name, device string, opts ...Option) error {
	const op = "registry_add_provider"
	switch {
	case name == "" || len(name) > maxProviderName:
		return fail(op, InvalidParameter, SubArg1, "the name has %d bytes, must have 1 to %d", len(name), maxProviderName)
	case device == "":
		return fail(op, InvalidParameter, SubArg2, "the device is empty")
	case slices.ContainsFunc(Providers(), func(p ProviderInfo) bool { return p.answers(name) }):
		return fail(op, ProviderAlreadyRegistered, SubNone, "there is an adapter %q already", name)
	}
	var scratch openOptions
	for _, opt := range opts {
		if err := opt(&scratch); err != nil {
			return err
		}
	}
	r := &registry
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.names[name] != nil:
		return fail(op, ProviderAlreadyRegistered, SubNone, "%q is registered already", name)
	case r.names[device] != nil:
		return fail(op, InvalidParameter, SubArg2, "%q is itself a registered name: name its device", device)
	case len(r.names) == maxProviders:
		return fail(op, InsufficientResources, SubResourceMemory, "all %d places are taken", maxProviders)
	}
	if r.names == nil {
		r.names = make(map[string]*registeredName)
	}
	r.names[name] = &registeredName{device: device, opts: slices.Clone(opts)}
	return nil
}

// RemoveProvider removes a name that RegisterProvider has added: it cannot be opened any more. While adapters are open by
// it, it is ProviderInUse and stays; a name that is not registered is InvalidParameter.
//
// Implements: dat_registry_remove_provider.
func RemoveProvider(name string) error {
	const op = "registry_remove_provider"
	r := &registry
	r.mu.Lock()
	defer r.mu.Unlock()
	switch p := r.names[name]; {
	case p == nil:
		return fail(op, InvalidParameter, SubArg1, "%q is not registered", name)
	case p.opens > 0:
		return fail(op, ProviderInUse, SubNone, "%d adapters are open as %q", p.opens, name)
	}
	delete(r.names, name)
	return nil
}

// list gives the registered names whose devices are among those found, in order.
func (r *providerRegistry) list(found []ProviderInfo) []ProviderInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []ProviderInfo
	for _, name := range slices.Sorted(maps.Keys(r.names)) {
		device := r.names[name].device
		for _, info := range found {
			if info.answers(device) {
				info.Name, info.Detail = name, "registered for "+device+"; "+info.Detail
				list = append(list, info)
				break
			}
		}
	}
	return list
}

// open begins the opening of a registered name, which close ends; nil if there is none of the name.
func (r *providerRegistry) open(name string) *registeredName {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.names[name]
	if p != nil {
		p.opens++
	}
	return p
}

func (r *providerRegistry) close(p *registeredName) {
	if p == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.opens--
}

// whatThereIs lists the names that could have been opened.
func whatThereIs() string {
	list, why := survey()
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = p.Name
	}
	text := "there are: " + strings.Join(names, ", ")
	if why != nil {
		text += " (" + strings.ReplaceAll(why.Error(), "\n", "; ") + ")"
	}
	return text
}
