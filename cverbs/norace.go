//go:build linux && cgo && !race

package cverbs

const raceEnabled = false
