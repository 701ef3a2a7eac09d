package udat_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// cmpAddrs compares addresses by value.
var cmpAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func register(t *testing.T, name, device string, opts ...udat.Option) {
	t.Helper()
	assert.NilError(t, udat.RegisterProvider(name, device, opts...))
	t.Cleanup(func() { udat.RemoveProvider(name) })
}

func listed(name string) (udat.ProviderInfo, bool) {
	for _, p := range udat.Providers() {
		if p.Name == name {
			return p, true
		}
	}
	return udat.ProviderInfo{}, false
}

// TestProviders shows that every listed adapter can be opened.
func TestProviders(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		before := udat.Providers()
		info, ok := listed(dev)
		assert.Assert(t, ok)
		assert.DeepEqual(t, []int{info.MajorVersion, info.MinorVersion}, []int{1, 2})
		assert.Assert(t, info.ThreadSafe && info.Active && info.Detail != "")
		rule.Proves(t, "REG-LIST-01")
		for _, p := range before {
			if p.Active && (p.Name == dev || p.Fabric == "mem") {
				ia := open(t, p.Name)
				assert.Equal(t, ia.Name(), p.Name)
				assert.Equal(t, ia.Addr().String(), p.Addr)
			}
		}
		rule.Proves(t, "REG-LIST-05")
		assert.DeepEqual(t, udat.Providers(), before)
		rule.Proves(t, "REG-LIST-04")
	})
}

// TestRegistry tests registered names, which stand for an adapter with options.
func TestRegistry(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		name := "test-" + dev
		register(t, name, dev, udat.WithAsyncQLen(77), udat.WithRNRRetry(2))
		info, ok := listed(name)
		assert.Assert(t, ok && info.ThreadSafe && info.MajorVersion == 1)
		rule.Proves(t, "REG-ADD-01")
		ia, err := udat.Open(name)
		assert.NilError(t, err)
		assert.Equal(t, ia.Name(), name)
		_, attr, _, err := ia.Query()
		assert.NilError(t, err)
		assert.Equal(t, attr.AdapterName, name)
		assert.Equal(t, ia.Addr(), open(t, dev).Addr())
		p, err := ia.AsyncEVD().Query()
		assert.NilError(t, err)
		assert.Assert(t, p.QLen >= 77)
		rule.Proves(t, "REG-ADD-03")

		assert.ErrorIs(t, udat.RegisterProvider(name, "mem0"), udat.ErrProviderAlreadyRegistered)
		assert.ErrorIs(t, udat.RegisterProvider(dev, "mem0"), udat.ErrProviderAlreadyRegistered)
		for _, bad := range []struct{ name, device string }{{"", dev}, {strings.Repeat("x", 256), dev}, {"y", ""},
			{"y", name}} {
			assert.ErrorIs(t, udat.RegisterProvider(bad.name, bad.device), udat.ErrInvalidParameter, "%q", bad)
		}
		assert.ErrorIs(t, udat.RegisterProvider("y", dev, udat.WithRetry(99)), udat.ErrInvalidParameter)
		undo := udat.LimitProviders(3)
		register(t, "second-"+dev, dev)
		register(t, "third-"+dev, dev)
		assert.ErrorIs(t, udat.RegisterProvider("fourth-"+dev, dev), udat.ErrInsufficientResources)
		undo()
		rule.Proves(t, "REG-ADD-02")

		assert.ErrorIs(t, udat.RemoveProvider(name), udat.ErrProviderInUse)
		_, ok = listed(name)
		assert.Assert(t, ok)
		_, err = ia.CreatePZ()
		assert.NilError(t, err)
		assert.NilError(t, ia.Close(udat.CloseAbrupt))
		assert.ErrorIs(t, udat.RemoveProvider("never registered"), udat.ErrInvalidParameter)
		assert.ErrorIs(t, udat.RemoveProvider(dev), udat.ErrInvalidParameter)
		rule.Proves(t, "REG-REM-02")
		assert.NilError(t, udat.RemoveProvider(name))
		_, err = udat.Open(name)
		assert.ErrorIs(t, err, udat.ErrProviderNotFound)
		_, ok = listed(name)
		assert.Assert(t, !ok)
		open(t, dev)
		rule.Proves(t, "REG-REM-01")

		register(t, "nowhere", "no such device")
		_, ok = listed("nowhere")
		assert.Assert(t, !ok, "what cannot be opened is not listed")
		_, err = udat.Open("nowhere")
		assert.ErrorIs(t, err, udat.ErrProviderNotFound)
		assert.ErrorIs(t, udat.RemoveProvider("nowhere"), nil) // a failed Open does not keep the name in use
	})
}
