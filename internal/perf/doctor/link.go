package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// link reports a port's speed, the device's PCIe link and NUMA node, and the port's counters and
// settings for classes of traffic. The argument netdev is "" if the port has no network device.
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

// pcie compares the bandwidth of the device's PCIe link with the best that the device supports. It
// also compares the bandwidth of the link with gbit, the bandwidth of the port in Gb/s.
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
