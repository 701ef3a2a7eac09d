//go:build race

package main

func init() { kept = 128 << 10 } // and the race detector of what it knows of memory
