package doctor

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// counters reports a port's counters of errors and congestion, and its PFC pause frames per
// priority.
func (d *doctor) counters(name, port, netdev string) {
	all := d.source.Read(port, "")
	if lost := all.Errors().List(); len(lost) > 0 {
		d.find(Note, "count again after a run (the results have what a run added): cable, switch buffers, PFC or ECN",
			"%s has counted errors or repeated packets: %s", name, strings.Join(lost, ", "))
	} else if len(all) > 0 {
		d.find(OK, "", "%s has counted no errors", name)
	}
	congested := all.Congestion().List()
	if frames := d.source.Pauses(netdev); frames != nil {
		pauses := frames.Pauses().List()
		if pauses == nil {
			pauses = []string{"no pause frames"}
		}
		congested = append(congested, pauses...)
	}
	if len(congested) > 0 {
		d.find(OK, "", "%s, congestion (ECN, PFC): %s", name, strings.Join(congested, ", "))
	}
}

// quality reports the settings for classes of traffic: the default type of service of rdma_cm, and
// the priorities with ECN and with PFC.
func (d *doctor) quality(name, device string, num uint8, netdev string) {
	if tos := d.line(fmt.Sprintf("sys/kernel/config/rdma_cm/%s/ports/%d/default_roce_tos", device, num)); tos != "" {
		d.find(OK, "", "%s: rdma_cm's default type of service is %s", name, tos)
	}
	for _, role := range []string{"roce_np", "roce_rp"} { // notification point, reaction point
		var on []string
		files, _ := filepath.Glob(d.path("sys/class/net/" + netdev + "/ecn/" + role + "/enable/*"))
		for _, file := range files {
			if d.line(d.relative(file)) == "1" {
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
	if priorities, err := d.kernel.pfc(netdev); err == nil {
		var on []string
		for _, prio := range priorities {
			on = append(on, strconv.Itoa(prio))
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
