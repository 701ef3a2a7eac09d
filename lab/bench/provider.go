package main

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/godat/godat/internal/perf/result"
)

// provider compares godat's DAT provider with the C library's. It runs dapltest's performance test
// with messages of 64 KiB. Both ends use the same provider, and the two providers take turns.
func (b *bench) provider(s *section) error {
	const c, ours = "libdaplofa", "libgodat"
	z := sizes[2]
	type end struct {
		name, library, parameters, port string
		env                             []string
	}
	ends := []end{{c, "libdaplofa.so.2", b.address + " 0", "62000", nil},
		{ours, filepath.Join(b.bin, "libgodat.so"), b.device, "63500", nil}}
	for i := range ends {
		env, stop, err := b.dapltestServer(ends[i].library, ends[i].parameters, ends[i].port)
		if err != nil {
			return fmt.Errorf("%s: %w", ends[i].name, err)
		}
		defer stop()
		ends[i].env = env
	}
	var all []*setting
	rate := s.table("Operations per second, polled", "", "ops/s", c, ours)
	single := s.table("One operation at a time, polled", "The mean, from post to completion.", "ns", c, ours)
	for _, op := range []struct{ dapl, name, depth string }{
		{"RW", result.Write, strconv.Itoa(z.depth)}, {"RR", result.Read, "16"},
	} {
		x := &setting{row: rate.row(op.name+", "+z.name, z.bytes, figure{ours, c, false, 0.97})}
		y := &setting{row: single.row(op.name+", "+z.name, z.bytes, figure{ours, c, true, 1.03})}
		for _, e := range ends {
			line := b.dapltestLine(e.port, b.operations(z.stream), op.depth, op.dapl, z.bytes)
			measure := func(of func(dapl) float64) series {
				return series{e.name, func() (float64, string, error) {
					d, err := dapltestRun(e.env, line)
					return of(d), show(line), err
				}}
			}
			x.series = append(x.series, measure(func(d dapl) float64 { return d.Ops }))
			y.series = append(y.series, measure(func(d dapl) float64 { return d.Latency }))
		}
		all = append(all, x, y)
	}
	s.Ended = b.rounds(all)
	return nil
}
