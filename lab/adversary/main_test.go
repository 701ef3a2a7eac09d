//go:build linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/lab/adversary/pattern"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// target builds the target's program.
func target(t *testing.T, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "target")
	build := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), "./target")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// firstSeed makes the sessions of the tests the same each time, as far as the order of what two
// processes do is.
const firstSeed = 48_000

// TestAdversary: whatever a peer changes in a legal conversation, the target neither crashes nor
// hangs, and no byte of its memory is written or read that was not granted; each post has one
// completion, and another connection of the target goes on.
func TestAdversary(t *testing.T) {
	variants := map[string][]string{"plain": nil, "portable": {"-tags", "portablesocket"}}
	sessions := 150
	if !testing.Short() {
		variants["race"] = []string{"-race"}
		sessions = 1500
	}
	for name, flags := range variants {
		t.Run(name, func(t *testing.T) {
			c := &campaign{targets: []string{target(t, flags...)}, seed: firstSeed, left: sessions}
			c.run(len(pattern.Modes), false)
			t.Log(c.summary())
			if len(c.findings) > 0 {
				t.Error("the findings stand above")
			}
			if c.sessions != sessions || c.established < sessions/2 || c.changes < sessions/2 {
				t.Errorf("of %d sessions there were %d, %d were established, with %d changes", sessions, c.sessions,
					c.established, c.changes)
			}
		})
	}
}

// TestPattern: each byte of a message that is another message's, or secret, is noticed.
func TestPattern(t *testing.T) {
	for _, size := range []int{1, 7, 8, 9, 5000} {
		b := make([]byte, size)
		pattern.Put(b, 12345)
		if n, ok := pattern.Number(b); ok != (size >= pattern.Begin) || ok && n != 12345 {
			t.Errorf("%d bytes: number %d, %t", size, n, ok)
		}
		if i := pattern.Wrong(b, 12345, 0); i >= 0 || bytes.IndexByte(b, pattern.Secret) >= 0 {
			t.Errorf("%d bytes: byte %d is wrong", size, i)
		}
		for _, at := range []int{pattern.Begin, size / 2, size - 1} {
			if at < pattern.Begin || at >= size {
				continue
			}
			was := b[at]
			for _, foreign := range []byte{pattern.Secret, pattern.Foreign(at), pattern.At(12346, at), 0} {
				if b[at] = foreign; pattern.Wrong(b, 12345, 0) != at {
					t.Errorf("byte %d of %d as %02x is not noticed", at, size, foreign)
				}
			}
			b[at] = was
		}
	}
}

// TestNotices: the adversary notices what a target does wrong. The target is a script.
func TestNotices(t *testing.T) {
	const begin = `echo '{"Port":1,"Grants":[]}'; read line; echo '"ready"'; read line; `
	for name, script := range map[string]string{
		"a crash":            `echo '{"Port":1,"Grants":[]}'; read line; echo panic >&2; exit 2`,
		"a report":           begin + `echo '{"Findings":["x"]}'; read line`,
		"memory that it has": begin + `echo '{"HeapKB":9999999}'; read line`,
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "target")
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
				t.Fatal(err)
			}
			c, err := start(program, pattern.Plain)
			if err != nil {
				t.Fatal(err)
			}
			defer c.stop()
			c.first = &pattern.Report{}
			err = c.begin(1, 0)
			if err == nil {
				_, err = c.end()
			}
			if !isFinding(err) {
				t.Errorf("no finding: %v", err)
			}
		})
	}
}

// TestForeignMemory: each byte of the target that was not posted is noticed in what it sends.
func TestForeignMemory(t *testing.T) {
	message := make([]byte, 3000)
	pattern.Put(message, 5)
	other := append([]byte(nil), message...)
	other[2000] = pattern.Secret
	late := message[100:] // of the same message, at another place
	for name, f := range map[string]*frame{
		"a secret in a write":       tagged(opWrite, true, 9, 5<<32, other),
		"a secret in an answer":     tagged(opReadResponse, true, 1, 0, other[1990:2010]),
		"a write of another":        tagged(opWrite, true, 9, 6<<32, message),
		"a write of another place":  tagged(opWrite, true, 9, 5<<32|200, late),
		"a secret in a send":        untagged(opSend, true, 0, 0, 1, 0, nil, other),
		"a send of another's bytes": untagged(opSend, true, 0, 0, 1, 0, nil, append(message[:1000:1000], late...)),
	} {
		if err := (&peer{}).content(f); !isFinding(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, f := range map[string]*frame{
		"a write": tagged(opWrite, true, 9, 5<<32, message),
		"a piece": tagged(opWrite, true, 9, 5<<32|100, late),
		"a send":  untagged(opSend, true, 0, 0, 1, 0, nil, message),
	} {
		if err := (&peer{}).content(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTaint: a frame that brings no byte of its headers as payload, and an atomic with the operands
// of a program, does not excuse the target. A frame that may does.
func TestTaint(t *testing.T) {
	send := untagged(opSend, true, 0xA5A5A5A5, 0, 1, 0, nil, foreign(9))
	for _, f := range []*frame{send, tagged(opWrite, true, 1, 0xA5, foreign(3)), atomic(1, 2, 5, 1, 0xA5, 1, 0),
		atomic(1, 0, 5, 1, 0, 1, 0), controlFrame(1, controlAck, 0xA5)} {
		if f.tainted() {
			t.Errorf("%v is tainted", f)
		}
	}
	longer, other := send.clone(), controlFrame(1, controlAck, 0xA5)
	longer.set(field{0, 2}, 2000)
	other.bytes[3] = 0x40 | opSend
	for _, f := range []*frame{longer, other, atomic(1, 0, 5, 1, 0, 0xA5, 0)} {
		if !f.tainted() {
			t.Errorf("%v is not tainted", f)
		}
	}
}
