package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

type pageEnd struct {
	Who   string
	Facts [][2]string
}

// about returns the lines at the top of a page: who was measured, when, and whether the plan is
// incomplete.
func about(d *result.Document) (all [][2]string) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, [2]string{name, value})
		}
	}
	end := func(f *result.Facts) string {
		return strings.Join(given(f.Host, f.Device, f.Link, f.Detail, prefixed("Linux ", f.Kernel)), ", ")
	}
	if d.Mesh == nil {
		add("Client", end(&d.Client))
		add("Server", end(&d.Server))
	}
	add("Labels", labelText(d))
	add("Started", stamp(d.Started))
	if d.Incomplete != nil {
		add("Incomplete", d.Incomplete.String())
	}
	return all
}

// labelText returns the labels of a document, sorted by name.
func labelText(d *result.Document) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(d.Labels)) {
		all = append(all, name+"="+d.Labels[name])
	}
	return strings.Join(all, ", ")
}

// stamp formats a time, or returns "" if it is unknown.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

func factList(f *result.Facts) [][2]string {
	var all [][2]string
	add := func(name, value string) {
		if value != "" && value != "0" {
			all = append(all, [2]string{name, value})
		}
	}
	add("Device", f.Device+" ("+f.Fabric+"), because "+f.Chosen)
	add("Host", f.Host)
	add("About", f.Detail)
	add("Link", f.Link)
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
