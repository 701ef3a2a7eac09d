package main

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/godat/godat/internal/perf/result"
)

// provider measures godat's DAT provider beside the C library's: dapltest's performance test with
// messages of 64 KiB, both ends on the same provider, which take turns.
func (b *bench) provider(s *result.Section) error {
	const c, ours = "libdaplofa", "libgodat"
	sizeOf := sizes[3]
	type end struct {
		name, port string
		env        []string
	}
	ends := []end{{name: c}, {name: ours}}
	for i := range ends {
		library, parameters, port := b.daplofa()
		if ends[i].name == ours {
			library, parameters, port = filepath.Join(b.bin, "libgodat.so"), b.device, "63500"
		}
		env, stop, err := b.dapltestServer(library, parameters, port)
		if err != nil {
			return fmt.Errorf("%s: %w", ends[i].name, err)
		}
		defer stop()
		ends[i].env, ends[i].port = env, port
	}
	type test struct {
		line         func(port string) []string
		rate, single *result.Table
	}
	var tests []test
	for _, op := range []struct{ dapl, name, depth string }{
		{"RW", result.Write, strconv.Itoa(sizeOf.depth)}, {"RR", result.Read, "16"},
	} {
		line := func(port string) []string {
			return b.dapltestLine(port, b.operations(sizeOf.stream), op.depth, op.dapl, sizeOf.bytes)
		}
		table := func(unit, title string) *result.Table {
			t := &result.Table{Title: title, Unit: unit, Series: []string{c, ours}}
			for _, e := range ends {
				t.How = append(t.How, show(line(e.port)))
			}
			s.Tables = append(s.Tables, t)
			return t
		}
		tests = append(tests, test{line, table("ops/s", "Operations per second of "+op.name+", polled"),
			table("ns", "One "+op.name+" at a time, polled: mean from post to completion")})
	}
	err := b.inRounds(compareTime, func() error {
		for _, t := range tests {
			for _, e := range ends {
				line := t.line(e.port)
				d, err := dapltestRun(e.env, line)
				if err != nil {
					t.rate.Fail(sizeOf.name, e.name, err)
					continue
				}
				t.rate.Add(sizeOf.name, e.name, show(line), d.Ops)
				t.single.Add(sizeOf.name, e.name, show(line), d.Latency)
			}
		}
		return nil
	})
	if b.machine != tcg {
		for _, t := range tests {
			t.rate.Mark(ours, ">=", 0.97, c)
			t.single.Mark(ours, "<=", 1.03, c)
		}
	}
	return err
}
