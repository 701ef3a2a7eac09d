package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/godat/godat/internal/perf/result"
)

// Run measures all pairs. If a pair fails, the matrix contains the pair's error. If a host cannot
// be reached or has been given up, all its later pairs get the host's error. Run itself returns an
// error only if the mesh is invalid, if Finish was closed (ErrFinished), or if ctx is done.
func (m *Mesh) Run(ctx context.Context) (*result.Document, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-m.Finish:
			cancel(ErrFinished)
		case <-stopped:
		}
	}()
	begun := time.Now()
	m.hosts, m.slow = make([]meshEnd, len(m.Hosts)), map[route]string{}
	m.mesh = &result.Mesh{Pattern: m.Pattern, Hosts: make([]result.MeshHost, len(m.Hosts))}
	doc := result.NewDocument(m.Version)
	doc.Mesh = m.mesh
	for _, c := range m.Plan.Cases {
		m.mesh.Matrices = append(m.mesh.Matrices, result.Matrix{Case: c})
	}
	var asking sync.WaitGroup
	for i, address := range m.Hosts {
		asking.Go(func() { m.mesh.Hosts[i] = m.ask(ctx, address) })
	}
	asking.Wait()
	m.steps(ctx)
	for i := range m.hosts {
		m.hang(i)
	}
	m.sort()
	m.mesh.Elapsed = result.Seconds(time.Since(begun))
	return doc, context.Cause(ctx)
}

// steps measures every case in each step.
func (m *Mesh) steps(ctx context.Context) {
	steps := stepsOf(m.Pattern, len(m.Hosts), m.AtOnce)
	m.mesh.Steps = len(steps)
	done := 0
	for _, one := range steps {
		m.mesh.AtOnce = max(m.mesh.AtOnce, len(one))
		worked := map[route]bool{}
		for i := range m.mesh.Matrices {
			mx := &m.mesh.Matrices[i]
			lost := m.lost()
			pairs, tried := m.measure(ctx, one, &mx.Case)
			mx.Pairs = append(mx.Pairs, pairs...)
			for j, r := range one {
				worked[r] = worked[r] || pairs[j].Run != nil
			}
			done++
			if all := len(steps) * len(m.mesh.Matrices); m.Watch != nil {
				m.Watch(MeshProgress{done, all, &mx.Case, tried, lost})
			}
		}
		m.judge(one, worked)
	}
}

// lost returns the hosts that have been left out since its previous call.
func (m *Mesh) lost() (all []result.MeshHost) {
	for i := range m.hosts {
		if h := &m.mesh.Hosts[i]; h.Error != "" && !m.hosts[i].lost {
			m.hosts[i].lost = true
			all = append(all, *h)
		}
	}
	return all
}

// patienceHosts is the number of hosts with which a host must fail in a row before it is given up.
// Without this limit, a host that hangs would take up the whole Timeout once for every other host.
const patienceHosts = 3

// judge decides after a step which hosts to give up. It gives up a host that has failed with at
// least patienceHosts other hosts since its last success. But the fault may be that of the other
// hosts. So the method keeps the host if one of the last patienceHosts of these other hosts has
// itself failed with patienceHosts hosts.
func (m *Mesh) judge(one step, worked map[route]bool) {
	for _, r := range one {
		for _, end := range [][2]int{{r.from, r.to}, {r.to, r.from}} {
			host, other := &m.hosts[end[0]], end[1]
			if worked[r] {
				host.failed = nil
			} else if !slices.Contains(host.failed, other) && m.mesh.Hosts[other].Error == "" {
				host.failed = append(host.failed, other)
			}
		}
	}
	for i := range m.hosts {
		n := len(m.hosts[i].failed)
		if n < patienceHosts || m.mesh.Hosts[i].Error != "" {
			continue
		}
		last := m.hosts[i].failed[n-patienceHosts:]
		if !slices.ContainsFunc(last, func(other int) bool { return len(m.hosts[other].failed) >= patienceHosts }) {
			m.mesh.Hosts[i].Error = fmt.Sprintf("given up: %s failed with %d hosts, one after the other",
				m.Hosts[i], n)
		}
	}
}

// sort sorts the pairs of each matrix in the order of m.Hosts, by client, then by server.
func (m *Mesh) sort() {
	numbers := map[string]int{}
	for i, h := range m.Hosts {
		numbers[h] = i
	}
	for i := range m.mesh.Matrices {
		slices.SortStableFunc(m.mesh.Matrices[i].Pairs, func(a, b result.Pair) int {
			return cmp.Or(numbers[a.From]-numbers[b.From], numbers[a.To]-numbers[b.To])
		})
	}
}
