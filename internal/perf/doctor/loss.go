package doctor

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Received returns how many packets a device's port has received, as the kernel counts them. It
// returns false if the kernel has no such count. The port of "mlx5_0" is port 1; other ports are
// written as in "mlx5_0/2".
func Received(device string) (n int64, ok bool) {
	name, port, _ := strings.Cut(device, "/")
	if port == "" {
		port = "1"
	}
	for _, file := range []string{"hw_counters/rcvd_pkts", "counters/port_rcv_packets"} {
		b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", name, "ports", port, file))
		if err != nil {
			continue
		}
		if n, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			return n, true
		}
	}
	return 0, false
}

// Arrived is called after an exchange of messages has failed. It concludes where packets were lost.
// Its arguments are the numbers of packets that the server's port and the client's port received
// during the exchange, or -1 if unknown.
func Arrived(server, client int64) []Finding {
	d := &doctor{}
	switch {
	case server < 0 || client < 0:
	case server == 0:
		d.find(Fail, filters("outgoing on this host, between the hosts (security groups, switches), incoming on the server"),
			"no packet has arrived at the server's port meanwhile: what this host sends is lost on the way there")
	case client == 0:
		d.find(Fail, filters("outgoing on the server, between the hosts, incoming on this host"),
			"the answers are lost: the server's port has received %d packets meanwhile, this host's none", server)
	default:
		d.find(Note, "", "%d packets have arrived at the server's port meanwhile, %d here: some are lost, in one direction "+
			"or both", server, client)
	}
	return d.findings
}

// filters is the advice to look for packet filters at the named places.
func filters(where string) string {
	return fmt.Sprintf("look for packet filters on UDP port %d: %s; %s list a host's rules", rocePort, where, listRules)
}

// datagramTime is how long Datagram waits for an answer.
const datagramTime = 500 * time.Millisecond

// Datagram sends a datagram from an address of this host to UDP port 4791 of another host. If an
// error comes back, for example from a router or a packet filter, Datagram returns it as a finding.
// If nothing is wrong, there is no answer, because soft-RoCE drops the datagram.
func Datagram(from, to netip.Addr) []Finding {
	d := &doctor{}
	err := func() error {
		dial := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		conn, err := dial.Dial("udp", netip.AddrPortFrom(to, rocePort).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("datperf doctor")); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(datagramTime))
		_, err = conn.Read(make([]byte, 1))
		return err
	}()
	what := fmt.Sprintf("a datagram from %v to UDP port %d of %v", from, rocePort, to)
	switch {
	case errors.Is(err, syscall.EPERM):
		d.find(Fail, listRules+" list its rules", "%s is refused by a packet filter of this host: %v",
			what, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		d.find(Note, "a packet filter that rejects, or no soft-RoCE device there; of an adapter in hardware it is usual",
			"%s is refused: %v", what, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES):
		d.find(Fail, "ip route get "+to.String()+"; a router or packet filter may refuse it", "%s does not get there: "+
			"%v", what, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		d.find(Fail, "give the device's network device that address", "%s cannot be sent: this host does not have %v",
			what, from)
	}
	return d.findings
}
