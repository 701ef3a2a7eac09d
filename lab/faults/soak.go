package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/godat/godat/udat"
)

// sample has what the process uses at one moment of a soak.
type sample struct {
	At    time.Duration
	Count baseline
}

// soaked has the results of a soak.
type soaked struct {
	Samples []sample `json:",omitempty"`
	Cycles  int      `json:",omitempty"`
}

// soakSamples is the number of samples of a soak.
const soakSamples = 120

// soakSlack returns by how much the use of a resource may grow during a soak. The caller compares
// the highest use in the last third of the samples with base, the highest use in the first third.
// The thirds do not include the first tenth of the samples. The slack is necessary because threads,
// and connections in TIMEWAIT, come and go.
func soakSlack(name string, base int) int {
	switch name {
	case "KiB resident":
		return max(16<<10, base/5)
	case "KiB of heap":
		return max(4<<10, base/5)
	case "KiB pinned":
		return 0
	case "threads":
		return threadSlack
	}
	return max(4, base/10)
}

// soak mixes load with connects and disconnects, while the links of the round carry traffic. Each
// cycle connects, reads and writes, registers, disconnects in one of three ways, and frees. Every
// tenth cycle also makes new adapters. The resources that the process and the kernel use must not
// grow.
func soak(r *round) error {
	began := time.Now()
	var samples []sample
	cycles := 0
	for time.Since(began) < r.soak {
		if err := r.soakAdapters(&cycles, func() {
			if time.Since(began) < r.soak*time.Duration(len(samples))/soakSamples {
				return
			}
			samples = append(samples, sample{time.Since(began), inUse(r.device)})
		}, began); err != nil {
			return fmt.Errorf("cycle %d, after %v: %w", cycles, time.Since(began).Round(time.Second), err)
		}
	}
	r.soaked = soaked{samples, cycles}
	if err := flat(samples); err != nil {
		return fmt.Errorf("%d cycles: %w", cycles, err)
	}
	return r.goOn()
}

// soakAdapters makes two adapters, runs ten cycles on them and closes them.
func (r *round) soakAdapters(cycles *int, measure func(), began time.Time) error {
	return attacked(r, func(k *attack) error {
		for range 10 {
			if time.Since(began) > r.soak {
				break
			}
			if err := k.permitted(); err != nil {
				return err
			}
			m, _, err := k.region("passing", k.v.pz, udat.PrivAll)
			if err != nil {
				return err
			}
			k.victims = nil
			if err := m.lmr.Free(); err != nil {
				return err
			}
			if err := r.traffic(1); err != nil {
				return err
			}
			if err := k.endPair(*cycles); err != nil {
				return err
			}
			*cycles++
			measure()
		}
		return nil
	})
}

// endPair ends the connection in one of three ways and frees both endpoints.
func (k *attack) endPair(way int) error {
	switch way % 3 {
	case 0, 1:
		flags := []udat.CloseFlags{udat.CloseGraceful, udat.CloseAbrupt}[way%3]
		if err := k.v.ep.Disconnect(flags); err != nil {
			return err
		}
	case 2:
		if err := k.v.ep.Free(); err != nil {
			return err
		}
		k.v.ep = nil
	}
	for _, s := range []*side{k.a, k.v} {
		if s.ep == nil {
			continue
		}
		if ev, err := s.next(); err != nil || !slices.Contains(ended, ev.Number) {
			return fmt.Errorf("the connection ends with %v (%v)", ev.Number, err)
		}
		if err := s.ep.Free(); err != nil {
			return err
		}
		s.ep = nil
	}
	return nil
}

// inUse returns how much memory, and how many objects, this process and the kernel's verbs use.
func inUse(device string) baseline {
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	b := process()
	b["KiB resident"] = processOf("self")["KiB resident"]
	maps.Copy(b, kernel(device))
	b["KiB of heap"] = int(mem.HeapAlloc >> 10)
	return b
}

// flat returns an error that lists what has grown during a soak.
func flat(samples []sample) error {
	samples = samples[len(samples)/10:]
	third := len(samples) / 3
	if third < 3 {
		return fmt.Errorf("only %d samples", len(samples))
	}
	highest := func(some []sample, name string) (n int) {
		for _, s := range some {
			n = max(n, s.Count[name])
		}
		return n
	}
	var grown []string
	for _, name := range slices.Sorted(maps.Keys(samples[0].Count)) {
		first, last := highest(samples[:third], name), highest(samples[len(samples)-third:], name)
		if last > first+soakSlack(name, first) {
			grown = append(grown, fmt.Sprintf("%s: %d, at first %d", name, last, first))
		}
	}
	if len(grown) > 0 {
		return fmt.Errorf("not flat: %v", grown)
	}
	return nil
}

var soakGroup = []scenario{
	{group: "soak", name: "mixed load with connects and disconnects",
		promise: "memory, descriptors, goroutines, threads and the kernel's verbs objects stay flat; all data is right",
		act:     soak, ends: disconnected, within: soon,
		rounds: map[string][2]int{"mem": {1, 1}, "tcp": {1, 1}, "rxe": {1, 1}, "siw": {1, 1}}},
}

// drawSoak draws the longest soak of at least ten minutes. It reports whether there is a figure,
// from this run or from an earlier one.
func drawSoak(path string, results []result) bool {
	var longest result
	length := 10*time.Minute - 10*time.Second // the last sample comes before the end
	for _, res := range results {
		if n := len(res.Samples); n > 0 && res.Samples[n-1].At >= length && len(res.Problems) == 0 {
			longest, length = res, res.Samples[n-1].At
		}
	}
	if len(longest.Samples) > 0 && os.WriteFile(path, soakFigure(longest), 0o644) != nil {
		return false
	}
	_, err := os.Stat(path)
	return err == nil
}

// soakFigure draws the samples of a soak. Each resource has a strip, from 0 to the maximum of the
// resource.
func soakFigure(res result) []byte {
	const left, width, strip, gap = 190, 520, 44, 16
	samples := res.Samples
	end := samples[len(samples)-1].At
	names := slices.Sorted(maps.Keys(samples[0].Count))
	height := 40 + len(names)*(strip+gap) + 20
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `, left+width+20, height)
	fmt.Fprintf(&b, `font-family="sans-serif" font-size="12">`+"\n")
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="10" y="22" font-size="14">`)
	fmt.Fprintf(&b, "Soak on %s: %v, %d connections made and ended, %d messages</text>\n",
		res.Fabric, end.Round(time.Second), res.Cycles, res.Messages)
	for i, name := range names {
		top := 40 + i*(strip+gap)
		highest, last := 1, samples[len(samples)-1].Count[name]
		for _, s := range samples {
			highest = max(highest, s.Count[name])
		}
		fmt.Fprintf(&b, `<text x="10" y="%d">%s</text><text x="10" y="%d" fill="gray">at most %d, last %d</text>`+"\n",
			top+18, name, top+34, highest, last)
		fmt.Fprintf(&b, `<path d="M%d %dh%d" stroke="lightgray"/><polyline fill="none" stroke="steelblue" points="`,
			left, top+strip, width)
		for _, s := range samples {
			fmt.Fprintf(&b, "%d,%d ", left+int(int64(width)*int64(s.At)/int64(end)), top+strip-strip*s.Count[name]/highest)
		}
		b.WriteString(`"/>` + "\n")
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">0</text><text x="%d" y="%d" text-anchor="end">%v</text>`+"\n</svg>\n",
		left, height-12, left+width, height-12, end.Round(time.Second))
	return b.Bytes()
}
