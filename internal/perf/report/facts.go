package report

import (
	"fmt"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

type pageEnd struct {
	Who   string
	Facts [][2]string
}

func factList(f *result.Facts) [][2]string {
	var all [][2]string
	add := func(name, value string) {
		if value != "" && value != "0" {
			all = append(all, [2]string{name, value})
		}
	}
	add("Device", f.Device+" ("+f.Fabric+"), because "+f.Chosen)
	add("About", f.Detail)
	add("Firmware", f.Firmware)
	add("MTU", fmt.Sprint(f.MTU))
	add("GID", strings.TrimSpace(f.GID+" "+f.GIDType))
	add("Kernel", f.Kernel)
	add("libibverbs", f.Libibverbs)
	add("Processors", fmt.Sprintf("%d x %s", f.CPUs, f.CPU))
	add("Governor", f.Governor)
	add("Pinned to", f.PinnedCPU)
	add("NUMA node", f.NUMANode)
	add("Go", fmt.Sprintf("%s, GOMAXPROCS %d", f.GoVersion, f.GOMAXPROCS))
	add("GODEBUG", f.GODEBUG)
	for _, w := range f.Warnings {
		add("Warning", w)
	}
	return all
}

func meshEnds(m *result.Mesh) (all []pageEnd) {
	for i, h := range m.Hosts {
		end := pageEnd{Who: fmt.Sprintf("%d %s", i+1, h.Address)}
		if h.Error != "" {
			end.Facts = append(end.Facts, [2]string{"Error", h.Error})
		}
		if h.Facts != nil {
			end.Facts = append(end.Facts, factList(h.Facts)...)
		}
		all = append(all, end)
	}
	return all
}
