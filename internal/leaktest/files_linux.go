package leaktest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// LimitFiles sets the open-file limit of this process to n, until undo is called or the test ends.
func LimitFiles(t testing.TB, n uint64) (undo func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	undo = func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(undo)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	return undo
}
