package cverbs

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

func TestDevice(t *testing.T) {
	ctx := openDevice(t)
	all, err := Devices()
	assert.NilError(t, err)
	var info DeviceInfo
	for _, d := range all {
		if d.Name == ctx.Name() {
			info = d
		}
	}
	attr, err := ctx.QueryDevice()
	assert.NilError(t, err)
	t.Logf("%+v\n%+v", info, attr)
	assert.Assert(t, info.GUID != 0 && info.GUID == attr.NodeGUID)
	assert.Assert(t, attr.MaxQP > 0 && attr.MaxCQE > 0 && attr.MaxSGE > 0 && attr.PhysPortCnt > 0 && attr.MaxMRSize > 0)

	port, err := ctx.QueryPort(1)
	assert.NilError(t, err)
	t.Logf("%+v", port)
	assert.Equal(t, port.State, PortActive)
	assert.Assert(t, port.ActiveMTU.Bytes() >= 256 && port.MaxMsgSize >= 1<<20 && port.GIDTableLen > 0)
	_, err = ctx.QueryPort(77)
	assert.ErrorContains(t, err, "port 77")
	if port.PKeyTableLen > 0 {
		key, err := ctx.QueryPKey(1, 0)
		assert.NilError(t, err)
		assert.Equal(t, key|0x8000, uint16(0xffff))
		index, err := ctx.PKeyIndex(1, key)
		assert.NilError(t, err)
		assert.Equal(t, index, 0)
		_, err = ctx.PKeyIndex(77, key)
		assert.ErrorIs(t, err, syscall.ENOENT)
		_, err = ctx.PKeyIndex(1, 0x8001)
		assert.ErrorContains(t, err, "port 1 has no P_Key 0x8001")
	}

	table, err := ctx.GIDTable()
	assert.NilError(t, err)
	assert.Assert(t, len(table) > 0)
	for _, e := range table {
		t.Logf("%+v", e)
		one, err := ctx.QueryGID(e.Port, e.Index)
		assert.NilError(t, err)
		assert.Equal(t, one, e)
	}
	if port.GIDTableLen > len(table) {
		_, err = ctx.QueryGID(1, port.GIDTableLen-1)
		assert.Assert(t, err != nil, "an empty entry is no GID")
	}
	for _, index := range []int{-1, 1 << 40} { // C would truncate the second to 0
		_, err = ctx.QueryGID(1, index)
		assert.ErrorContains(t, err, fmt.Sprintf("index %d", index))
		_, err = ctx.QueryPKey(1, index)
		assert.ErrorContains(t, err, fmt.Sprintf("index %d", index))
	}
	best, reason, err := ctx.BestGID(1)
	assert.NilError(t, err)
	t.Log(reason)
	for _, e := range table {
		have, _ := gidRank(best)
		other, _ := gidRank(e)
		assert.Assert(t, have <= other)
	}
}

func TestOpenUnknownDevice(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no verbs here")
	}
	_, err := OpenDevice("nosuch0")
	if err == ErrNotSupported {
		t.Skip(err)
	}
	isErr(t, err, syscall.ENODEV)
	assert.ErrorContains(t, err, `no device "nosuch0"`)
	all, _ := Devices()
	for _, d := range all {
		assert.Assert(t, strings.Contains(err.Error(), d.Name))
	}
}
