package main

import (
	"os"
	"slices"
	"testing"

	"github.com/godat/godat/internal/leaktest"
)

// TestMain is also the datperf server of scenarios, and what else is a process of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"-datperf", "-stream"}, os.Args[1]) {
		main()
		return
	}
	leaktest.Main(m)
}
