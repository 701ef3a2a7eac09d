package rdmanet_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain fails the package if the tests leave goroutines behind, and prints them. With a role in
// the environment it is the peer of a test instead.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(play(role))
	}
	code := m.Run()
	if code == 0 {
		left := ours()
		for until := time.Now().Add(patience); len(left) > 0 && time.Now().Before(until); left = ours() {
			time.Sleep(10 * time.Millisecond)
		}
		if len(left) > 0 {
			fmt.Printf("FAIL: left behind by the tests:\n%s\n", strings.Join(left, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// ours are the stacks of goroutines that the library started.
func ours() []string {
	buf := make([]byte, 16<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return slices.DeleteFunc(all, func(g string) bool {
		_, by, _ := strings.Cut(g, "created by ")
		return !strings.Contains(by, "godat/") || strings.Contains(by, "_test.")
	})
}
