package main

import (
	"os"
	"testing"

	"github.com/godat/godat/internal/leaktest"
)

// TestMain is also the datperf server of scenarios, which is a process of its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-datperf" {
		main()
		return
	}
	leaktest.Main(m)
}
