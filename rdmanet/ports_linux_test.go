package rdmanet_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
	"github.com/godat/godat/udat"
)

// fewPortsEnv is set in the process of TestFewPorts that has a network namespace of its own.
const fewPortsEnv = "GODAT_TEST_FEW_PORTS"

// TestFewPorts: a device of one address makes as many connections as "tcp", which shares each local
// port among the peers. The error without a free port is EADDRNOTAVAIL and says what to do. The
// device opens all the same. An address to which the host has none is no lack of ports.
func TestFewPorts(t *testing.T) {
	if os.Getenv(fewPortsEnv) != "" {
		fewPorts(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFewPorts$", "-test.v")
	cmd.Env = append(os.Environ(), fewPortsEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skip("needs a network namespace: ", err)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skip(string(out))
	}
	assert.NilError(t, err, "%s", out)
}

func fewPorts(t *testing.T) {
	loopbackUp(t)
	for name, value := range map[string]string{"ipv4/ip_local_port_range": "40000 40009",
		"ipv6/conf/lo/disable_ipv6": "1"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			t.Skip(err)
		}
	}
	fewPortsOn(t, "tcp", "127.0.0.1:7001", "127.0.0.1:7002")
	fewPortsOn(t, "tcp:127.0.0.1", "127.0.0.1:7003", "127.0.0.1:7004") // ports that no TIME_WAIT remembers
	_, err := (&rdmanet.Dialer{Device: "tcp"}).Dial(context.Background(), "rdma", "[::1]:7001")
	assert.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	assert.Assert(t, !strings.Contains(err.Error(), "ip_local_port_range"), err)
}

func fewPortsOn(t *testing.T, device string, addrs ...string) {
	for _, a := range addrs {
		l, err := (&rdmanet.ListenConfig{Device: device}).Listen(t.Context(), "rdma", a)
		assert.NilError(t, err)
		defer l.Close()
	}
	d := rdmanet.Dialer{Device: device}
	var all []*rdmanet.Conn
	var err error
	for {
		var c *rdmanet.Conn
		if c, err = d.Dial(t.Context(), "rdma", addrs[len(all)%2]); err != nil {
			break
		}
		all = append(all, c)
	}
	assert.Equal(t, len(all), 20, "%s: %v", device, err)
	noPort(t, err)
	ia, err2 := udat.Open("tcp:127.0.0.1")
	assert.NilError(t, err2)
	assert.NilError(t, ia.Close(udat.CloseAbrupt))
	_, err = (&rdmanet.ListenConfig{Device: device}).Listen(t.Context(), "rdma", "127.0.0.1:0")
	assert.ErrorIs(t, err, syscall.EADDRINUSE)
	assert.ErrorContains(t, err, "ip_local_port_range")
	for _, c := range all {
		assert.NilError(t, c.SetLinger(0))
		c.Close()
	}
}

func noPort(t *testing.T, err error) {
	t.Helper()
	assert.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
	assert.ErrorContains(t, err, "ip_local_port_range")
	assert.Assert(t, !errors.Is(err, syscall.EHOSTUNREACH) && !strings.Contains(err.Error(), "firewall"), err)
}

// loopbackUp sets up the loopback interface of a new network namespace.
func loopbackUp(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	assert.NilError(t, err)
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	assert.NilError(t, err)
	lo.SetUint16(unix.IFF_UP)
	assert.NilError(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}
