package main

import (
	"os"
	"testing"
)

// TestHello runs the example inside this process, and on the device that the environment names.
func TestHello(t *testing.T) {
	devices := []string{"mem0"}
	if d := os.Getenv("GODAT_TEST_DEVICE"); d != "" {
		devices = append(devices, d)
	}
	for _, d := range devices {
		if err := run(d); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
}
