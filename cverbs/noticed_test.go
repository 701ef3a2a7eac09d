//go:build linux && cgo

package cverbs

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/looptest"
)

// Lists of devices are freed. The loop device has 32 at once.
func TestManyLists(t *testing.T) {
	openDevice(t)
	for range 40 {
		all, err := Devices()
		assert.NilError(t, err)
		assert.Assert(t, len(all) > 0)
	}
}

// Devices and event channels that are opened and closed leave no descriptor behind.
func TestManyOpened(t *testing.T) {
	name := openDevice(t).Name()
	cycle := func() {
		ctx, err := OpenDevice(name)
		assert.NilError(t, err)
		ch, err := CreateEventChannel()
		assert.NilError(t, err)
		assert.NilError(t, errors.Join(ch.Close(), ctx.Close()))
	}
	cycle()
	before, _, _ := footprint(t)
	for range 8 {
		cycle()
	}
	after, _, _ := footprint(t)
	assert.Equal(t, after, before)
}

// A function of the libraries that returns success and does nothing is noticed by a test: an object
// of each kind that is never destroyed, a list that is never freed, an answer that is empty.
func TestNoticed(t *testing.T) {
	for call, test := range map[string]string{
		"ibv_dereg_mr":               "TestRegMR",
		"ibv_dealloc_pd":             "TestRegMR",
		"ibv_destroy_cq":             "TestCQSize",
		"ibv_destroy_comp_channel":   "TestChannelTwoQueues",
		"ibv_destroy_qp":             "TestChannelTwoQueues",
		"ibv_close_device":           "TestManyOpened",
		"ibv_free_device_list":       "TestManyLists",
		"rdma_destroy_id":            "TestCMMigrate",
		"rdma_destroy_event_channel": "TestManyOpened",
		"_ibv_query_gid_ex":          "TestQueryGID",
		"ibv_ack_cq_events":          "TestChannelTwoQueues",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			looptest.Noticed(t, call, test)
		})
	}
}
