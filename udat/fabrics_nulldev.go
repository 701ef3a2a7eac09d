//go:build linux && cgo && nulldev

package udat

import "github.com/godat/godat/udat/internal/verbsfabric"

// With the build tag nulldev there is a device, "null0", that does nothing: see package cverbs.
func init() { moreFabrics = append(moreFabrics, verbsfabric.NullFabric{}) }
