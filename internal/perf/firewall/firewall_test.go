//go:build linux

package firewall

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
)

// inNamespace runs f in a new network namespace, in which lo is up.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }() // also when f ends the test
		runtime.LockOSThread()         // the thread ends with the goroutine, and the namespace with it
		err = unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = exec.Command("ip", "link", "set", "lo", "up").Run()
		}
		if err == nil {
			f()
		}
	}()
	if err := <-done; errors.Is(err, unix.EPERM) || errors.Is(err, exec.ErrNotFound) {
		t.Skip("no network namespace can be made here")
	} else {
		assert.NilError(t, err)
	}
}

// passes sends a datagram over lo and reports whether it arrives.
func passes(t *testing.T, dst netip.Addr, port uint16) bool {
	ln, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, port)))
	assert.NilError(t, err)
	defer ln.Close()
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, port)))
	assert.NilError(t, err)
	defer conn.Close()
	if _, err := conn.Write([]byte("?")); err != nil {
		return false // refused on the way out
	}
	ln.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	_, err = ln.Read(make([]byte, 8))
	return err == nil
}

// script runs a shell script. It skips the test if a program, or something in the kernel, is
// missing.
func script(t *testing.T, text string) {
	t.Helper()
	out, err := exec.Command("sh", "-e", "-c", text).CombinedOutput()
	if err == nil {
		return
	}
	for _, missing := range []string{"not found", "Table does not exist", "Operation not supported", "can't initialize"} {
		if strings.Contains(string(out), missing) {
			t.Skipf("%s", out)
		}
	}
	t.Fatalf("%v: %s", err, out)
}

// both returns a script that gives rules to iptables and ip6tables, of kind nft or legacy.
func both(kind string, rules ...string) string {
	text := ""
	for _, program := range []string{"iptables-", "ip6tables-"} {
		for _, r := range rules {
			text += program + kind + " " + r + "; "
		}
	}
	return text
}

// table returns a script that loads a table with chains.
func table(chains string) string {
	return "nft -f - <<'END'\ntable inet f {\n" + chains + "\n}\nEND\n"
}

// Ask must predict what the kernel does: the test loads each set of rules into a namespace and
// sends a datagram.
func TestAsk(t *testing.T) {
	in := "chain in { type filter hook input priority 0; policy accept; "
	strict := "chain in { type filter hook input priority 0; policy drop; "
	const v4, v6 = "127.0.0.1", "::1"
	for name, c := range map[string]struct {
		rules string
		rule  string // a part of the name of the one that drops
	}{
		"no rules":           {"true", ""},
		"nft port":           {table(in + "udp dport 4791 drop; }"), "table inet f, chain in, handle"},
		"nft other port":     {table(in + "udp dport 4792 drop; tcp dport 4791 drop; }"), ""},
		"nft reject":         {table(in + "udp dport 4791 counter reject; }"), "chain in, handle"},
		"nft policy":         {table(strict + "}"), "policy drop"},
		"nft policy, let in": {table(strict + "udp dport { 53, 4791 } accept; }"), ""},
		"nft set":            {table(in + "udp dport { 53, 4791 } drop; }"), "handle"},
		"nft set without":    {table(in + "udp dport { 53, 4792 } drop; }"), ""},
		"nft not in set":     {table(in + "udp dport != { 53, 4792 } drop; }"), "handle"},
		"nft interval":       {table(in + "udp dport 4000-5000 drop; }"), "handle"},
		"nft intervals":      {table(in + "udp dport { 1-5, 4780-4791, 60000-65535 } drop; }"), "handle"},
		"nft after interval": {table(in + "udp dport { 1-5, 4780-4790, 60000-65535 } drop; }"), ""},
		"nft named set": {
			table("set s { type inet_service; flags interval; elements = { 4791 } }\n" + in + "udp dport @s drop; }"),
			"handle",
		},
		"nft empty set":   {table("set s { type inet_service; }\n" + in + "udp dport @s drop; }"), ""},
		"nft map":         {table(in + "udp dport vmap { 53 : accept, 4791 : drop }; }"), "handle"},
		"nft map accepts": {table(strict + "udp dport vmap { 53 : drop, 4791 : accept }; }"), ""},
		"nft data map": {
			table(in + "meta mark set udp dport map { 4791 : 7 }; udp dport 4791 drop; }"),
			"handle",
		},
		"nft netdev":       {table(in + "iifname lo udp dport 4791 drop; }"), "handle"},
		"nft netdevs":      {table(in + "iifname \"l*\" udp dport 4791 drop; }"), "handle"},
		"nft other netdev": {table(in + "iifname \"eth*\" udp dport 4791 drop; }"), ""},
		"nft index":        {table(in + "iif lo udp dport 4791 drop; }"), "handle"},
		"nft state":        {table(in + "ct state established accept; udp dport 4791 drop; }"), "handle"},
		"nft state new":    {table(strict + "ct state new udp dport 4791 accept; }"), ""},
		"nft source": {
			table(in + "ip saddr 127.0.0.0/8 udp dport 4791 drop; ip6 saddr ::1 udp dport 4791 drop; }"),
			"handle",
		},
		"nft other source":   {table(in + "ip saddr 10.0.0.0/8 drop; ip6 saddr fd00::/8 drop; }"), ""},
		"nft destination":    {table(in + "ip daddr { 10.0.0.1, 127.0.0.1 } drop; ip6 daddr ::1 drop; }"), "handle"},
		"nft protocol":       {table(in + "meta l4proto udp drop; }"), "handle"},
		"nft other protocol": {table(in + "meta l4proto { tcp, icmp } drop; }"), ""},
		"nft jump":           {table("chain c { udp dport 4791 drop; }\n" + in + "jump c; }"), "chain c, handle"},
		"nft jump back": {
			table("chain c { udp dport 53 drop; return; }\n" + in + "jump c; udp dport 4791 drop; }"),
			"chain in",
		},
		"nft goto": {table("chain c { udp dport 53 drop; }\n" + in + "goto c; udp dport 4791 drop; }"), ""},
		"nft goto, policy": {
			table("chain c { udp dport 53 drop; }\n" + strict + "goto c; udp dport 4791 accept; }"),
			"policy drop",
		},
		"nft output": {
			table("chain out { type filter hook output priority 0; udp dport 4791 drop; }"),
			"chain out",
		},
		"nft prerouting": {
			table("chain p { type filter hook prerouting priority -300; udp dport 4791 drop; }"),
			"chain p",
		},
		"nft forward": {table("chain f { type filter hook forward priority 0; policy drop; }"), ""},
		"nft two tables": {
			table(in+"udp dport 4791 accept; }") + "nft -f - <<'END'\ntable inet g { chain late { type filter hook input " +
				"priority 10; udp dport 4791 drop; }\n}\nEND",
			"table inet g, chain late",
		},
		"nft ingress": {"nft -f - <<'END'\ntable netdev f { chain i { type filter hook ingress device lo priority 0; " +
			"udp dport 4791 drop; }\n}\nEND",
			"table netdev f, chain i"},
		"nft mark":     {table(in + "meta mark & 0xff == 0 udp dport 4791 drop; }"), "handle"},
		"iptables-nft": {both("nft", "-A INPUT -p udp --dport 4791 -j DROP"), "chain INPUT"},
		"iptables-nft multiport": {both("nft", "-A INPUT -p udp -m multiport --dports 53,4790:4792 -j DROP"),
			"chain INPUT"},
		"iptables-nft multiport without": {
			both("nft", "-A INPUT -p udp -m multiport --dports 53,4792:4795 -j DROP"),
			"",
		},
		"iptables-nft state": {both("nft", "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
			"-A INPUT -m comment --comment x -j REJECT"), "chain INPUT"},
		"iptables-nft policy": {both("nft", "-A INPUT -p udp ! --dport 53 -j ACCEPT",
			"-P INPUT DROP"), ""},
		"legacy": {
			both("legacy", "-A INPUT -p udp --dport 4791 -j DROP"),
			"legacy, table filter, chain INPUT, rule 1",
		},
		"legacy other": {both("legacy", "-A INPUT -p udp --dport 4792 -j DROP",
			"-A INPUT -i eth+ -j DROP"), ""},
		"legacy chain": {both("legacy", "-N rdma",
			"-A INPUT -j DROP -p tcp",
			"-A INPUT -i lo -j rdma",
			"-A rdma -p udp -m multiport --dports 53,4000:5000 -j REJECT"), "chain rdma, rule 1"},
		"legacy back": {both("legacy", "-N rdma",
			"-A INPUT -j rdma",
			"-A INPUT -p udp -j DROP",
			"-A rdma -j RETURN"), "chain INPUT, rule 2"},
		"legacy goto": {both("legacy", "-N rdma",
			"-A INPUT -g rdma",
			"-A INPUT -p udp -j DROP",
			"-A rdma -p tcp -j DROP"), ""},
		"legacy policy": {both("legacy", "-A INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT",
			"-P INPUT DROP"),
			"policy DROP"},
		"legacy raw": {
			both("legacy", "-t raw -A PREROUTING -p udp --dport 4791 -j DROP"),
			"table raw, chain PREROUTING",
		},
		"legacy accepts": {both("legacy", "-A INPUT -p udp --dport 4791 -j ACCEPT",
			"-A INPUT -j DROP"), ""},
		"legacy source": {"iptables-legacy -A INPUT -s 127.0.0.0/8 -d 127.0.0.1 -p udp -j DROP; ip6tables-legacy -A " +
			"INPUT ! -s fd00::/8 -p udp -j DROP",
			"rule 1"},
	} {
		t.Run(name, func(t *testing.T) {
			inNamespace(t, func() {
				script(t, c.rules)
				rules, err := Read()
				assert.NilError(t, err)
				for _, address := range []string{v4, v6} {
					a := netip.MustParseAddr(address)
					p := Packet{Netdev: "lo", Src: a, Dst: a, Proto: ProtoUDP, Port: 4791}
					v := rules.Ask(p)
					if p.Out = true; !v.Dropped {
						v = rules.Ask(p)
					}
					assert.Equal(t, !v.Dropped, passes(t, a, 4791), "%s: %+v", address, v)
					assert.Assert(t, v.Certain == v.Dropped, "%+v", v)
					assert.Assert(t, strings.Contains(v.Rule, c.rule) && (v.Rule == "") == (c.rule == ""), "%s: %+v", address, v)
				}
			})
		})
	}
}

// The verdict is uncertain if it depends on more than the packet. A rule with a counter reports how
// many packets it has dropped.
func TestUncertain(t *testing.T) {
	inNamespace(t, func() {
		script(t, "nft 'add table inet f; add chain inet f in { type filter hook input priority 0; };"+
			"add rule inet f in udp dport 4791 limit rate over 10/second drop; add rule inet f in udp dport 4792 counter drop;"+
			"add rule inet f in udp sport 5 udp dport 4793 drop'")
		a := netip.MustParseAddr("127.0.0.1")
		for range 3 {
			passes(t, a, 4792)
		}
		rules, err := Read()
		assert.NilError(t, err)
		assert.Equal(t, rules.Count(), 3)
		for port, want := range map[uint16]Verdict{4791: {Dropped: true}, 4792: {Dropped: true, Certain: true, Packets: 3},
			4793: {Dropped: true}, 4794: {}} {
			got := rules.Ask(Packet{Netdev: "lo", Src: a, Dst: a, Proto: ProtoUDP, Port: port})
			got.Rule = ""
			assert.Equal(t, got, want, fmt.Sprint(port))
		}
	})
}

// If reading the rules is not permitted, Read returns that error.
func TestNotAllowed(t *testing.T) {
	inNamespace(t, func() {
		var hdr unix.CapUserHeader
		hdr.Version = unix.LINUX_CAPABILITY_VERSION_3
		var none [2]unix.CapUserData
		assert.NilError(t, unix.Capset(&hdr, &none[0])) // of this thread, which ends
		_, err := Read()
		assert.ErrorIs(t, err, unix.EPERM)
	})
}
