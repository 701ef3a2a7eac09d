package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// TestReadme runs the README's program, which is at the end of this file, against a server.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	assert.NilError(t, err)
	_, program, found := strings.Cut(string(readme), "```go\n")
	program, _, ends := strings.Cut(program, "```\n")
	assert.Assert(t, found && ends, "the README has no program")
	source, err := os.ReadFile("readme_test.go")
	assert.NilError(t, err)
	assert.Assert(t, strings.HasSuffix(string(source), "\n"+program),
		"the README's program is not the one at the end of readme_test.go")

	onEach(t, func(t *testing.T, device string) {
		host := ""
		if device != "mem0" {
			host = addressOf(t, device)
		}
		listener, err := (&rdmanet.ListenConfig{Device: device}).Listen(t.Context(), "rdma", host+":0")
		assert.NilError(t, err)
		defer listener.Close()
		served := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				served <- err
				return
			}
			defer conn.Close()
			question, err := bufio.NewReader(conn).ReadString('\n')
			fmt.Fprint(conn, "the answer to ", question)
			served <- err
		}()
		answer, err := ask(t.Context(), device, listener.Addr().String(), "who is there?")
		assert.NilError(t, err)
		assert.Equal(t, answer, "the answer to who is there?\n")
		assert.NilError(t, <-served)
	})
}

// ask sends a question to a server and returns its answer. It fails where RDMA does not work.
func ask(ctx context.Context, device, server, question string) (string, error) {
	dialer := rdmanet.Dialer{Device: device} // "mlx5_0"; "tcp": over TCP; "": the device of the route
	conn, err := dialer.Dial(ctx, "rdma", server)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	fmt.Fprintln(conn, question)
	return bufio.NewReader(conn).ReadString('\n')
}
