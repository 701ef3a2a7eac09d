//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godat/godat/lab/adversary/pattern"
)

// TestDefects: the adversary finds these defects, each within about a minute on an idle machine. By
// them a peer once wrote and read memory, and ended the process.
func TestDefects(t *testing.T) {
	if testing.Short() {
		t.Skip("some minutes")
	}
	const tcp = "../../udat/internal/tcpfabric/"
	for name, edits := range map[string][]struct{ file, code, instead string }{
		"a second answer to a read": {{"verify.go", "!x.wrote(l, &l.sent.reads, n)", "false"}},
		"an acknowledgement of what is not written": {{"verify.go", "!x.wrote(l, &l.sent.requests, n)", "false"},
			{"tx.go", "m.state != written:", "m.state == begun:"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, replaced := t.TempDir(), map[string]string{}
			for _, e := range edits {
				file, err := filepath.Abs(tcp + e.file)
				if err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(file)
				if n := strings.Count(string(text), e.code); err != nil || n != 1 {
					t.Fatalf("%q is %d times in %s: %v", e.code, n, e.file, err)
				}
				replaced[file] = filepath.Join(dir, e.file)
				write(t, replaced[file], strings.Replace(string(text), e.code, e.instead, 1))
			}
			list, err := json.Marshal(map[string]any{"Replace": replaced})
			if err != nil {
				t.Fatal(err)
			}
			overlay := filepath.Join(dir, "overlay.json")
			write(t, overlay, string(list))
			c := &campaign{targets: []string{target(t, "-overlay", overlay)}, seed: firstSeed, left: 5000}
			c.run(len(pattern.Modes), false)
			t.Log(c.summary())
			if len(c.findings) == 0 {
				t.Error("no finding")
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
