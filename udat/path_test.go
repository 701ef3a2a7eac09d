package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// onePath are paths with one field each.
var onePath = []udat.PathOptions{{TOS: new(int)}, {ServiceLevel: new(int)}, {MTU: new(1024)}, {GIDIndex: new(int)},
	{AckTimeout: new(int)}}

// TestPath: the device uses the path that the options of Open request, at both ends. An option that
// a fabric does not support is refused.
func TestPath(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		plain := newEnd(t, dev, setup{})
		_, err := plain.ep.Path()
		refused(t, err, udat.InvalidState, udat.SubStateEPUnconnected)
		attr := udat.DeviceAttr(plain.ia)
		switch {
		case attr.Info.Fabric == "mem":
			for _, opt := range onePath {
				_, err := udat.Open(dev, udat.WithPath(opt))
				assert.ErrorContains(t, err, "has no packets")
			}
			return
		case attr.Info.Fabric == "tcp":
			for _, opt := range onePath[1:] {
				_, err := udat.Open(dev, udat.WithPath(opt))
				assert.ErrorContains(t, err, "TCP sets service level")
			}
			pair(t, dev, setup{opts: []udat.Option{udat.WithPath(udat.PathOptions{TOS: new(104)})}})
			return
		case attr.Transport == "iWARP":
			_, err := udat.Open(dev, udat.WithPath(udat.PathOptions{MTU: new(1024)}))
			assert.ErrorContains(t, err, "iWARP has no")
			pair(t, dev, setup{opts: []udat.Option{udat.WithPath(udat.PathOptions{TOS: new(104)})}})
			return
		}
		_, err = udat.Open(dev, udat.WithPath(udat.PathOptions{GIDIndex: new(255)}))
		refused(t, err, udat.InvalidParameter, udat.SubNone)
		assert.ErrorContains(t, err, "GID index is 255, where "+dev+" has no GID")
		if attr.MTU < 4096 {
			_, err = udat.Open(dev, udat.WithPath(udat.PathOptions{MTU: new(4096)}))
			assert.ErrorContains(t, err, "path MTU is 4096, "+dev+" has")
		}
		connect(t, plain, newEnd(t, dev, setup{}))
		by, err := plain.ep.Path()
		assert.NilError(t, err)
		retries := uint8(7)
		if attr.VendorName == "Soft-RoCE" { // there 7 means without limit
			retries = 6
		}
		assert.Equal(t, by.Retry, retries)
		a, b := pair(t, dev, setup{opts: []udat.Option{udat.WithRetry(5), udat.WithRNRRetry(4),
			udat.WithPath(udat.PathOptions{TOS: new(104), ServiceLevel: new(3), MTU: new(512),
				GIDIndex: new(int(by.GIDIndex)), AckTimeout: new(17)})}})
		want := udat.Path{MTU: 512, TOS: 104, SL: 3, GIDIndex: by.GIDIndex, AckTimeout: 17, Retry: 5, RNRRetry: 4}
		for _, e := range []*end{a, b} {
			got, err := e.ep.Path()
			assert.NilError(t, err)
			if attr.VendorName == "Soft-RoCE" { // its driver does not report it
				got.SL = want.SL
			}
			assert.Equal(t, got, want)
		}
		assert.Assert(t, by != want)
		got := a.put(0, 4000, 1) // several packets
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 4000), 1, 0))
		assert.NilError(t, a.ep.PostSend(a.iov(0, 4000), 2, 0))
		completion(t, b.recv, 1)
		assert.DeepEqual(t, b.get(0, 4000), got)
	})
}

// TestWithChecksums: the device tcp accepts both values, also if the peer's differs; other devices
// refuse the option.
func TestWithChecksums(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		kind := udat.DeviceAttr(newEnd(t, dev, setup{}).ia).Info.Fabric
		for _, on := range []bool{false, true} {
			if kind != "tcp" {
				_, err := udat.Open(dev, udat.WithChecksums(on))
				refused(t, err, udat.ModelNotSupported, udat.SubNone)
				continue
			}
			a := newEnd(t, dev, setup{opts: []udat.Option{udat.WithChecksums(on)}})
			b := newEnd(t, dev, setup{opts: []udat.Option{udat.WithChecksums(false)}})
			connect(t, a, b)
		}
	})
}
