package main

import (
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestWrongCalls: no argument of a C program ends the program, and each answer has the right type.
func TestWrongCalls(t *testing.T) {
	for _, device := range []string{"mem0", "loop0"} {
		t.Run(device, func(t *testing.T) {
			out := run(t, program(t, filepath.Join(directory(t), "wrong"), "godat-"+device))
			assert.Assert(t, strings.HasSuffix(out, " cases, 0 wrong\n"), out)
		})
	}
}

// withSanitizer are the tests that AddressSanitizer makes fail.
var withSanitizer = map[string]string{
	"coroutine_cost": "looks for the stack's bounds by itself",
	"address_space":  "reserves terabytes",
	"locked_memory":  "has shadows of all memory",
}

// TestHost: the provider leaves the signals, stacks, threads and children of a program alone.
func TestHost(t *testing.T) {
	host := filepath.Join(directory(t), "host")
	names := strings.Fields(run(t, program(t, host)))
	assert.Assert(t, len(names) > 20, names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			if why := withSanitizer[name]; sanitized && why != "" {
				t.Skip("AddressSanitizer " + why)
			}
			ia := "godat-loop0"
			if name == "address_space" || name == "locked_memory" { // the loop device maps gigabytes
				ia = "godat-mem0"
			}
			cmd := program(t, host, ia, name)
			cmd.Env = append(cmd.Env, "SECOND=second")
			out := run(t, cmd)
			assert.Assert(t, strings.HasSuffix(out, "ok\n"), out)
		})
	}
}
