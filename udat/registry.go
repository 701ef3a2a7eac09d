package udat

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/godat/godat/udat/internal/fabric"
)

// ProviderInfo describes an adapter that Open can open on this host.
type ProviderInfo struct {
	Name   string // the name to pass to Open
	Fabric string // "verbs", "tcp" for this host's TCP, or "mem" for the fabric inside this process
	Addr   string // the adapter's IP address; empty if it has none
	// Addrs has all IP addresses of the adapter, the preferred one first. Open accepts each of them.
	// The list is empty for mem0 and tcp.
	Addrs        []string
	Active       bool   // the port is up
	Detail       string // for people: transport, address, and why this address was chosen
	MajorVersion int    // major version of uDAPL: 1
	MinorVersion int    // minor version of uDAPL: 2
	ThreadSafe   bool   // always true
}

// Providers lists all adapters of this host, and the names that RegisterProvider has added for
// them. The adapters mem0 and tcp are always in the list. If adapters are missing, WhyNoDevices
// returns the reason.
//
// Implements: dat_registry_list_providers.
func Providers() []ProviderInfo {
	list, _ := survey()
	return list
}

// survey lists the devices of all fabrics. The error joins the errors of the fabrics that could not
// list their devices.
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
	p := ProviderInfo{Name: d.Name, Fabric: d.Fabric, Active: d.Active, Detail: d.Detail, MajorVersion: providerMajor,
		MinorVersion: providerMinor, ThreadSafe: true}
	if d.Addr.IsValid() {
		p.Addr = d.Addr.String()
	}
	for _, a := range d.Addrs {
		p.Addrs = append(p.Addrs, a.String())
	}
	return p
}

// answers reports whether name is a name or an address by which Open opens the adapter.
func (p *ProviderInfo) answers(name string) bool {
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.Unmap().String()
	}
	return p.Name == name || p.Addr == name || slices.Contains(p.Addrs, name)
}

// WhyNoDevices returns the errors of the fabrics that could not list their devices, or nil if all
// could.
//
// Extension.
func WhyNoDevices() error {
	_, why := survey()
	return why
}

// maxProviderName is the greatest length of a registered name, in bytes.
const maxProviderName = 255

// maxProviders is the greatest number of registered names; only tests change it.
var maxProviders = 1024

// registry holds the names that RegisterProvider has added.
var registry providerRegistry

type providerRegistry struct {
	mu    ranked[rankRegistry]
	names map[string]*registeredName
}

// registeredName has the device and the options that a registered name stands for.
type registeredName struct {
	device string
	opts   []Option
	opens  int // number of open adapters that were opened by this name; guarded by the registry's lock
}

// RegisterProvider registers name as an alias of device, the name or address of a device. When Open
// is called with name, it opens device with opts, followed by the options of Open itself. Open, not
// RegisterProvider, checks whether the device exists.
//
// Errors: ProviderAlreadyRegistered if the name is registered or belongs to a device;
// InvalidParameter if name or device is empty, if name has more than 255 bytes, or if device is
// itself a registered name; InsufficientResources if 1024 names are registered.
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
	if err := scratch.apply(op, opts); err != nil {
		return err
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

// RemoveProvider removes a name that RegisterProvider has added. It returns InvalidParameter if the
// name is not registered. If adapters that were opened by this name are still open, it changes
// nothing and returns ProviderInUse.
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

// list returns the registered names of the given devices, sorted by name.
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

// The method open counts an adapter that is opened by a registered name, and returns the name's
// entry, or nil if the name is not registered. The method close undoes the count.
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

// whatThereIs lists, for an error text, the names that Open accepts.
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
