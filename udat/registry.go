package udat

import (
	"errors"
	"strings"

	"github.com/godat/godat/udat/internal/fabric"
)

// ProviderInfo is an adapter that Open can open on this host now.
type ProviderInfo struct {
	Name         string // what Open takes
	Fabric       string // "verbs", or "mem" for the fabric inside this process
	Addr         string // its IP address, that Open takes too; empty where it has none
	Active       bool   // its port is up
	Detail       string // for people: transport, address, why
	MajorVersion int    // of uDAPL: 1
	MinorVersion int    // 2
	ThreadSafe   bool   // always
}

// Providers lists every adapter found on this host; there is no dat.conf to maintain. The fabric inside this process
// is always there. See Registry for why others are not.
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
	return list, errors.Join(why...)
}

func providerInfo(d fabric.DeviceInfo) ProviderInfo {
	p := ProviderInfo{Name: d.Name, Fabric: d.Fabric, Active: d.Active, Detail: d.Detail, MajorVersion: 1, MinorVersion: 2, ThreadSafe: true}
	if d.Addr.IsValid() {
		p.Addr = d.Addr.String()
	}
	return p
}

// WhyNoDevices says why a fabric of this host has no devices to list, nil if there is nothing to say.
//
// Extension.
func WhyNoDevices() error {
	_, why := survey()
	return why
}

// openable gives the fabrics to ask for a name.
func openable(string) []fabric.Fabric { return fabrics() }

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
