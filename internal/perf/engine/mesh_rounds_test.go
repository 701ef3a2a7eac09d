package engine

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
)

// Every pattern contains each of its routes once. In a step no host has the same role twice. In a
// step of Pairs no host is in two routes. In a step of Incast all routes have the same
// server.
func TestSteps(t *testing.T) {
	for _, pattern := range result.Patterns {
		for _, n := range []int{2, 3, 4, 5, 8, 63, 64} {
			seen := map[route]int{}
			steps := stepsOf(pattern, n, 0)
			for _, one := range steps {
				from, to, either := map[int]int{}, map[int]int{}, map[int]int{}
				for _, r := range one {
					assert.Assert(t, r.from != r.to && r.from >= 0 && r.to >= 0 && r.from < n && r.to < n)
					seen[r]++
					from[r.from]++
					to[r.to]++
					either[r.from]++
					either[r.to]++
				}
				for host := range n {
					assert.Assert(t, from[host] <= 1, "%s of %d: host %d is a client twice", pattern, n, host)
					switch pattern {
					case result.Incast:
						assert.Assert(t, to[host] == 0 || to[host] == n-1)
					default:
						assert.Assert(t, either[host] <= 1, "%s of %d: host %d is in two routes", pattern, n, host)
					}
				}
			}
			assert.Equal(t, len(seen), n*(n-1), "%s of %d", pattern, n)
			for r, times := range seen {
				assert.Equal(t, times, 1, "%s of %d: %v", pattern, n, r)
			}
		}
	}
	assert.Equal(t, len(stepsOf(result.Pairs, 64, 0)), 126)
	assert.Equal(t, len(stepsOf(result.Incast, 64, 0)), 64)
}

// No step has more than atOnce routes, and no route is lost.
func TestStepsAtOnce(t *testing.T) {
	for _, most := range []int{1, 3, 32} {
		routes := 0
		for _, one := range stepsOf(result.Pairs, 64, most) {
			assert.Assert(t, len(one) >= 1 && len(one) <= most)
			routes += len(one)
		}
		assert.Equal(t, routes, 64*63)
	}
}
