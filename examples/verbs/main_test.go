package main

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/examples/internal/exampletest"
	"github.com/godat/godat/udat"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestUsage(t *testing.T) { exampletest.Usage(t, "usage: verbs ADDRESS") }

// Runs server and client as processes on a device; cverbs has no device like mem0.
func TestProcesses(t *testing.T) {
	device := exampletest.Device(t)
	if strings.HasPrefix(device, "tcp") {
		t.Skip("cverbs has no TCP")
	}
	if strings.HasPrefix(device, "loop") {
		t.Skip("the loop device has no queue pairs of librdmacm (rdma_create_qp)")
	}
	ia, err := udat.Open(device)
	assert.NilError(t, err)
	local := ia.Addr()
	assert.NilError(t, ia.Close(udat.CloseGraceful))
	server := exampletest.Start(t, local.String())
	assert.Equal(t, exampletest.Run(t, server.Address(t), "hello"), "hello\n")
	server.Wait(t)
}
