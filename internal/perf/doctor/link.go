package doctor

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// link checks what lies between a port and the wire, and between the device and the processors:
// speed, PCIe, NUMA node, and what the port has counted. netdev is empty where there is none.
func (d *doctor) link(device string, num uint8, netdev string) {
	name := fmt.Sprintf("%s port %d", device, num)
	dir := "sys/class/infiniband/" + device
	port := fmt.Sprintf("%s/ports/%d", dir, num)
	rate := d.line(port + "/rate") // "100 Gb/sec (4X EDR)"
	gbit, _ := strconv.ParseFloat(strings.Fields(rate + " 0")[0], 64)
	if mbit, err := strconv.ParseFloat(d.line("sys/class/net/"+netdev+"/speed"), 64); err == nil && mbit > 0 {
		gbit = mbit / 1000
		rate += fmt.Sprintf("; %s runs at %g Gb/s", netdev, gbit)
	}
	if rate != "" {
		d.find(OK, "", "%s: link %s", name, rate)
	}
	d.pcie(device, dir+"/device", gbit)
	if node := d.line(dir + "/device/numa_node"); node != "" && node != "-1" {
		d.find(OK, "", "%s is on NUMA node %s, near processors %s: pin to one of them (--cpu)", device, node,
			d.line(dir+"/device/local_cpulist"))
	}
	d.counters(name, port, netdev)
	d.quality(name, device, num, netdev)
}

// pcie compares the device's PCIe link with what the device can and with what the port needs.
func (d *doctor) pcie(device, dir string, gbit float64) {
	is := func(kind string) (speed float64, width int) {
		fmt.Sscan(d.line(dir+"/"+kind+"_link_speed"), &speed) // "16.0 GT/s PCIe"
		fmt.Sscan(d.line(dir+"/"+kind+"_link_width"), &width)
		return speed, width
	}
	speed, width := is("current")
	if speed == 0 || width == 0 {
		return // not a PCIe device
	}
	carries := speed * float64(width) * 128 / 130
	if speed < 8 {
		carries = speed * float64(width) * 8 / 10
	}
	what := fmt.Sprintf("%s: PCIe %g GT/s x%d, %.0f Gb/s before PCIe's own headers", device, speed, width, carries)
	best, widest := is("max")
	switch {
	case speed < best || width < widest:
		d.find(Note, "another slot, or the slot's speed in the firmware's settings; some devices lower it when idle",
			"%s: the device can do %g GT/s x%d", what, best, widest)
	case gbit > carries:
		d.find(Note, "a slot of more lanes or a higher generation", "%s: less than the port's %g Gb/s", what, gbit)
	default:
		d.find(OK, "", "%s", what)
	}
}

// trouble are the counters of a port that count errors, losses and repetitions, on InfiniBand, on
// RoCE and of soft-RoCE; signs are those that count congestion. All count from the driver's start.
var (
	trouble = []string{"symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
		"local_link_integrity_errors", "excessive_buffer_overrun_errors", "out_of_sequence", "packet_seq_err",
		"local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err", "rx_icrc_encapsulated", "roce_slow_restart",
		"retry_exceeded_err", "rcvd_seq_err", "rcvd_rnr_err", "retry_rnr_exceeded_err"}
	signs = []string{"port_xmit_wait", "np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled"}
)

// Lost returns the counters that have grown and mean lost or repeated packets.
func Lost(grown map[string]int64) []string {
	var all []string
	for _, name := range trouble {
		if n := grown[name]; n > 0 {
			all = append(all, fmt.Sprintf("%s %d", name, n))
		}
	}
	return all
}

// counters reports the port's counters, and the pause frames of PFC by priority.
func (d *doctor) counters(name, port, netdev string) {
	all := map[string]int64{}
	for _, kind := range []string{"counters", "hw_counters"} {
		files, _ := filepath.Glob(d.path(port + "/" + kind + "/*"))
		for _, file := range files {
			rel, _ := filepath.Rel(d.root, file)
			if n, err := strconv.ParseInt(d.line(rel), 10, 64); err == nil {
				all[filepath.Base(file)] = n
			}
		}
	}
	if lost := Lost(all); len(lost) > 0 {
		d.find(Note, "count again after a run (the results have what a run added): cable, switch buffers, PFC or ECN",
			"%s has counted errors or repeated packets: %s", name, strings.Join(lost, ", "))
	} else if len(all) > 0 {
		d.find(OK, "", "%s has counted no errors", name)
	}
	var congested []string
	for _, one := range signs {
		if n, known := all[one]; known {
			congested = append(congested, fmt.Sprintf("%s %d", one, n))
		}
	}
	if pauses, ok := d.pauses(netdev); ok {
		congested = append(congested, pauses...)
	}
	if len(congested) > 0 {
		d.find(OK, "", "%s, congestion (ECN, PFC): %s", name, strings.Join(congested, ", "))
	}
}

// pauses returns the pause counters of a network device that are not zero; ok is false where they
// cannot be read.
func (d *doctor) pauses(netdev string) (all []string, ok bool) {
	out, err := d.command("ethtool", "-S", netdev)
	if netdev == "" || err != nil {
		return nil, false
	}
	for line := range strings.Lines(out) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if strings.Contains(name, "pause") && n != "0" {
			all = append(all, name+" "+n)
		}
	}
	if all == nil {
		all = []string{"no pause frames"}
	}
	return all, true
}

// quality reports which classes of traffic the host treats apart: PFC, ECN, the DSCP of rdma_cm.
func (d *doctor) quality(name, device string, num uint8, netdev string) {
	if tos := d.line(fmt.Sprintf("sys/kernel/config/rdma_cm/%s/ports/%d/default_roce_tos", device, num)); tos != "" {
		d.find(OK, "", "%s: rdma_cm's default type of service is %s", name, tos)
	}
	for _, role := range []string{"roce_np", "roce_rp"} { // notification point, reaction point
		var on []string
		files, _ := filepath.Glob(d.path("sys/class/net/" + netdev + "/ecn/" + role + "/enable/*"))
		for _, file := range files {
			if rel, _ := filepath.Rel(d.root, file); d.line(rel) == "1" {
				on = append(on, filepath.Base(file))
			}
		}
		if netdev != "" && len(files) > 0 {
			d.find(OK, "", "%s: ECN (%s) is on for priorities %s", name, role, orNone(on))
		}
	}
	if netdev == "" {
		return
	}
	if out, err := d.command("dcb", "pfc", "show", "dev", netdev, "prio-pfc"); err == nil { // "prio-pfc 0:off 3:on"
		var on []string
		for _, word := range strings.Fields(out) {
			if prio, yes := strings.CutSuffix(word, ":on"); yes {
				on = append(on, prio)
			}
		}
		d.find(OK, "", "%s: PFC is on for priorities %s", name, orNone(on))
	}
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// Ports that a firewall must let through.
const (
	rocePort    = "4791"
	controlPort = "18516"
)

// firewall hints at rules that may keep RDMA or the control connection out. Only an exchange
// between two hosts proves that they pass.
func (d *doctor) firewall() {
	rules, err := d.command("nft", "list", "ruleset")
	if err != nil {
		rules, err = d.command("iptables-save")
	}
	if err != nil {
		return // not installed, or not allowed
	}
	strict := strings.Contains(rules, "hook input") && strings.Contains(rules, "policy drop") ||
		strings.Contains(rules, ":INPUT DROP") || strings.Contains(rules, " reject") || strings.Contains(rules, "-j REJECT")
	if !strict {
		d.find(OK, "", "no firewall rule here drops or rejects what comes in by default")
		return
	}
	for _, port := range []struct{ number, proto, what string }{
		{rocePort, "udp", "RoCE v2"}, {controlPort, "tcp", "datperf's control connection"},
	} {
		if !strings.Contains(rules, port.number) {
			d.find(Note, fmt.Sprintf("nft add rule inet filter input %s dport %s accept, or its like", port.proto, port.number),
				"the firewall drops or rejects, and no rule names %s port %s: %s may not come in", port.proto, port.number,
				port.what)
		}
	}
}

// output runs a program of the system, if it is installed, for at most 5 s.
func output(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).Output()
	return string(out), err
}
