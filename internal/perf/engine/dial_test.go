package engine

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// The advice is to start a server only if nothing listens on the port. A silent host, and an
// address without its zone or with a wrong one, get other advice.
func TestDialAdvice(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	over, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	for _, c := range []struct {
		ctx           context.Context
		address, want string
	}{
		{context.Background(), "127.0.0.1:" + strconv.Itoa(port), "(start one there with: datperf server)"},
		{over, "127.0.0.1", "(a packet filter on the way"},
		{context.Background(), "fe80::1", "(write the zone of the link-local address: fe80::1%eth0)"},
		{context.Background(), "fe80::1%none", "(this host has no network interface none)"},
	} {
		_, err := Dial(c.ctx, c.address, port, nil)
		assert.ErrorContains(t, err, c.want)
		assert.Equal(t, strings.Contains(err.Error(), "start one"), strings.HasPrefix(c.want, "(start"), err)
	}
}
