package udat_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
)

// refusing is a fabric that opens no device.
type refusing struct {
	fabric.Fabric
	err error
}

func (r refusing) Open(string, fabric.Options, func(fabric.AsyncEvent)) (fabric.Device, error) {
	return nil, r.err
}

// TestOpenRefused: if several fabrics return errors, Open returns the first that is not
// ErrNoDevice, or that comes from the fabric whose name begins the device's name.
func TestOpenRefused(t *testing.T) {
	none := fabric.ErrNoDevice
	noFirst, noSecond := fmt.Errorf("%w: first", none), fmt.Errorf("%w: second", none)
	first, second := errors.New("first"), errors.New("second")
	for _, c := range []struct {
		name            string
		verbs, mem, tcp error
		want            string
	}{
		{"a0", first, none, second, "first"}, {"a0", none, first, second, "first"}, {"a0", none, none, second, "second"},
		{"a0", noFirst, none, noSecond, ""}, {"tcp:a", noFirst, none, noSecond, "second"},
		{"mem:a", none, noFirst, noSecond, "first"}, {"tcp:a", first, none, noSecond, "first"},
		{"tcp", none, none, noSecond, ""}, {"a0", none, none, none, ""},
	} {
		_, err := udat.Open(c.name, udat.Through(func(f fabric.Fabric) fabric.Fabric {
			return refusing{f, map[string]error{"verbs": c.verbs, "mem": c.mem, "tcp": c.tcp}[f.Name()]}
		}))
		assert.Assert(t, err != nil)
		for _, text := range []string{"first", "second"} {
			assert.Equal(t, strings.Contains(err.Error(), text), text == c.want, "%+v: %v", c, err)
		}
	}
}
