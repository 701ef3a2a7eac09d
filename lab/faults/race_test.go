//go:build race

package main

func init() { kept = 128 << 10 } // with the race detector's knowledge of memory
