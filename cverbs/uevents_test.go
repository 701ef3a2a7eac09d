//go:build linux && cgo

package cverbs

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestIsRemoval: isRemoval recognizes the report of a removed RDMA device, whatever else the report
// contains.
func TestIsRemoval(t *testing.T) {
	for report, want := range map[string]bool{
		"remove@/devices/virtual/infiniband_verbs/uverbs0\x00SUBSYSTEM=infiniband_verbs\x00SEQNUM=9\x00": true,
		"remove@/devices/virtual/infiniband/rxe0\x00ACTION=remove\x00SUBSYSTEM=infiniband\x00":           true,
		"add@/devices/virtual/infiniband/rxe0\x00ACTION=add\x00SUBSYSTEM=infiniband\x00":                 false,
		"remove@/devices/virtual/net/rxe0\x00ACTION=remove\x00SUBSYSTEM=net\x00":                         false,
		"remove@": false, "": false,
	} {
		assert.Equal(t, isRemoval([]byte(report)), want, "%q", report)
	}
}

// TestWatchDevices: the watch ends when its file is closed.
func TestWatchDevices(t *testing.T) {
	f, err := openUevents()
	assert.NilError(t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		watchDevices(f, func() {})
	}()
	time.Sleep(10 * time.Millisecond)
	assert.NilError(t, f.Close())
	select {
	case <-over:
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
}
