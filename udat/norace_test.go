//go:build !race

package udat_test

const raceEnabled = false
