package udat

import (
	"errors"
	"strings"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/tcpfabric"
	"github.com/godat/godat/udat/internal/verbsfabric"
)

// fabrics returns all fabrics: the verbs of this host, the fabric inside this process, and this
// host's TCP. Only this file names them.
func fabrics() []fabric.Fabric { return []fabric.Fabric{verbs, mem, tcp} }

var (
	verbs = verbsfabric.New()
	mem   = memfabric.Default()
	tcp   = tcpfabric.New()
)

// openFabric opens the device with this name or local address on the first fabric that has the
// device. If no fabric can open the device, openFabric returns the first error that says more than
// fabric.ErrNoDevice. If the device's name begins with the name of a fabric, as in "tcp:192.0.2.7",
// every error of that fabric counts as such an error. If all errors say no more, openFabric returns
// fabric.ErrNoDevice.
func (o *openOptions) openFabric(name string, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	refusal := fabric.ErrNoDevice
	for _, f := range fabrics() {
		if o.wrap != nil {
			f = o.wrap(f)
		}
		device, err := f.Open(name, o.fabric, async)
		switch {
		case err == nil:
			return device, nil
		case refusal == fabric.ErrNoDevice &&
			(!errors.Is(err, fabric.ErrNoDevice) || strings.HasPrefix(name, f.Name()+":")):
			refusal = err
		}
	}
	return nil, refusal
}
