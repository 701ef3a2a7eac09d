package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestScenarios runs each scenario of mem0 a few times.
func TestScenarios(t *testing.T) {
	r, problems := newRunner("mem0", "", 7, 1)
	assert.Equal(t, len(problems), 0, "%v", problems)
	r.soak, r.short = 3*time.Second, true
	for i := range scenarios {
		s := &scenarios[i]
		if s.rounds["mem"][0] == 0 || s.tests {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			res := r.run(s, 2)
			assert.Equal(t, len(res.Problems), 0, "%v", res.Problems)
			assert.Equal(t, res.Rounds, 2)
		})
	}
}

// TestLedger checks that a ledger notices wrong completions.
func TestLedger(t *testing.T) {
	make := func() *ledger {
		l := newLedger("queue", true)
		for range 3 {
			l.add(post{})
		}
		return l
	}
	l := make()
	_, err := l.complete(0, udat.DTOSuccess)
	assert.NilError(t, err)
	_, err = l.complete(0, udat.DTOSuccess)
	assert.ErrorContains(t, err, "twice")
	_, err = l.complete(7, udat.DTOSuccess)
	assert.ErrorContains(t, err, "not made")
	_, err = l.complete(2, udat.DTOSuccess)
	assert.ErrorContains(t, err, "before post 1")
	l = make()
	_, err = l.complete(0, udat.DTOErrFlushed)
	assert.NilError(t, err)
	_, err = l.complete(1, udat.DTOSuccess)
	assert.ErrorContains(t, err, "behind one that failed")
}

// TestChecks changes bytes, numbers and canaries, and expects each to be noticed.
func TestChecks(t *testing.T) {
	e, err := openEnd("end", setup{Device: "mem0", Retry: 7}, &counts{})
	assert.NilError(t, err)
	l := e.links[0]
	body := make([]byte, slotSize)
	payload := func(seq uint64) header {
		set(body, emptyByte)
		n := payloadLength(seq)
		fill(body[:n], l.id, seq)
		return header{kind: data, link: l.id, seq: seq, length: uint32(n), sum: sum(body[:n])}
	}
	noticed := func(what string) {
		t.Helper()
		assert.Assert(t, len(e.problems) > 0, what)
		e.problems = nil
	}
	l.take(payload(0), body)
	assert.Equal(t, len(e.problems), 0, "%v", e.problems)
	l.take(payload(0), body)
	noticed("a doubled message")
	l.take(payload(5), body)
	noticed("a lost message")
	h := payload(6)
	body[0] ^= 1
	l.take(h, body)
	noticed("a changed byte")
	h = payload(7)
	body[h.length] ^= 1
	l.take(h, body)
	noticed("a byte behind the message")
	l.posted(udat.ErrInvalidState)
	noticed("a refused post")
	l.requests.next = 0
	l.end(udat.EventConnectionBroken)
	noticed("an end without a cause")
	l.end(udat.EventConnectionBroken)
	noticed("a second end")
	var b [headSize]byte
	h.put(b[:])
	b[9]++
	_, err = parseHeader(b[:])
	assert.ErrorContains(t, err, "checksum")
	l.in.whole[canarySize-1]++
	assert.ErrorContains(t, l.in.check(), "byte 1 before")
	l.out.whole[canarySize+len(l.out.buf)]++
	assert.ErrorContains(t, l.out.check(), "byte 0 behind")
	e.mayEnd.Store(true)
	assert.NilError(t, e.ia.Close(udat.CloseAbrupt))
	assert.Assert(t, baseline{"goroutines": 1}.more(baseline{"goroutines": 2}) != "")
}

// TestPattern checks that a stream's checks notice a changed, a lost and a doubled byte, and bytes
// that are missing at its end.
func TestPattern(t *testing.T) {
	sent := make([]byte, 20_000)
	_, err := io.ReadFull(written(7), sent)
	assert.NilError(t, err)
	for at := 1; at <= len(sent); at += 4999 { // in pieces of any size
		got := written(7)
		_, err = io.Copy(got, io.MultiReader(bytes.NewReader(sent[:at]), bytes.NewReader(sent[at:])))
		assert.NilError(t, err)
		assert.Equal(t, got.bytes, int64(len(sent)))
	}
	for what, b := range map[string][]byte{
		"a changed byte": slices.Concat(sent[:9000], []byte{sent[9000] ^ 1}, sent[9001:]),
		"a lost byte":    slices.Concat(sent[:9000], sent[9001:]),
		"a doubled byte": slices.Concat(sent[:9001], sent[9000:]),
	} {
		_, err := written(7).Write(b)
		assert.ErrorIs(t, err, errWrongBytes, what)
	}
	assert.NilError(t, agree(flowed{Sent: 3, Taken: 5}, flowed{Sent: 5, Taken: 3}))
	assert.ErrorContains(t, agree(flowed{Sent: 3}, flowed{Taken: 2}), "Taken:2")
	assert.ErrorContains(t, agree(flowed{}, flowed{Error: "it breaks"}), "it breaks")
}

// TestPage writes the page of two fabrics, one of which has failed.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "mem0.json"), filepath.Join(dir, "rxe0.json")
	s := &scenarios[0]
	for path, res := range map[string]result{
		good: {Group: s.group, Name: s.name, Fabric: "mem0", Rounds: 7, Worst: 3 * time.Millisecond,
			Without: []string{"windows"}},
		bad: {Group: s.group, Name: s.name, Fabric: "rxe0", Rounds: 2, Problems: []string{"it hangs"}},
	} {
		assert.NilError(t, writeResults(path, []result{res}))
	}
	page := filepath.Join(dir, "page.md")
	assert.NilError(t, writePage(page, []string{good}, nil))
	assert.ErrorContains(t, writePage(page, []string{good, bad}, nil), "broken")
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	for _, want := range []string{s.promise, "| 7, 3ms, without windows |", "**FAILED** in 2", "it hangs"} {
		assert.Assert(t, strings.Contains(string(text), want), want)
	}
}

// TestPageKeeps: a page keeps the cells of all that did not run again, and takes the new ones. A
// page with a row that failed is not kept.
func TestPageKeeps(t *testing.T) {
	const real = "../../docs/reliability.md"
	dir := t.TempDir()
	again, page := filepath.Join(dir, "again.json"), filepath.Join(dir, "page.md")
	s := &scenarios[0]
	assert.NilError(t, writeResults(again, []result{{Group: s.group, Name: s.name, Fabric: "tcp", Rounds: 12345}}))
	old, err := readPage(real)
	assert.NilError(t, err)
	assert.NilError(t, writePage(page, []string{again}, old))
	text, err := os.ReadFile(page)
	assert.NilError(t, err)
	before, err := os.ReadFile(real)
	assert.NilError(t, err)
	was, is := strings.Split(string(before), "\n"), strings.Split(string(text), "\n")
	assert.Equal(t, len(is), len(was))
	differ := 0
	for i := range is {
		if is[i] != was[i] {
			differ++
			assert.Assert(t, strings.HasPrefix(is[i], "| "+s.name) && strings.Contains(is[i], "| 12345, 0s |"), is[i])
		}
	}
	assert.Equal(t, differ, 1)
	failed := strings.Replace(string(text), "| 12345, 0s |", "| **FAILED** in 2 |", 1)
	assert.NilError(t, os.WriteFile(page, []byte(failed), 0o644))
	_, err = readPage(page)
	assert.ErrorContains(t, err, s.name)
}

// TestVerdicts: a test that is skipped, in whole or in part, does not count as passed there.
func TestVerdicts(t *testing.T) {
	const pass, skip = "--- PASS: TestX (0.00s)\n", "--- SKIP: TestX (0.00s)\n"
	for _, c := range []struct {
		out     string
		passed  bool
		without int
	}{
		{pass, true, 0},
		{skip, false, 0},
		{"--- FAIL: TestX (0.00s)\n", false, 0},
		{pass + "    --- PASS: TestX/a_b (0.00s)\n    --- SKIP: TestX/c_d (0.00s)\n", true, 1},
		{pass + "    --- SKIP: TestX/a_b (0.00s)\n    --- SKIP: TestX/c_d (0.00s)\n", false, 2},
		{pass + "    --- PASS: TestX/rxe0 (0.00s)\n    --- SKIP: TestX/siw0 (0.00s)\n", true, 0},
		{pass + "    --- PASS: TestX/mem0 (0.00s)\n", false, 0},
		{pass + "    --- PASS: TestX/mem0 (0.00s)\n    --- SKIP: TestX/rxe0 (0.00s)\n", false, 1},
	} {
		passed, without := verdictOf(c.out, "TestX", "rxe0")
		assert.Equal(t, passed, c.passed, c.out)
		assert.Equal(t, len(without), c.without, c.out)
	}
	_, without := verdictOf(pass+"    --- PASS: TestX/a (0.00s)\n    --- SKIP: TestX/c_d (0.00s)\n", "TestX", "rxe0")
	assert.Equal(t, without[0], "c d")
}

// TestFlat checks that a soak notices what grows, and nothing else.
func TestFlat(t *testing.T) {
	soak := func(name string, count func(i int) int) []sample {
		samples := make([]sample, soakSamples)
		for i := range samples {
			samples[i] = sample{time.Duration(i) * 6 * time.Second, baseline{name: count(i)}}
		}
		return samples
	}
	assert.NilError(t, flat(soak("descriptors", func(i int) int { return 30 + i%3 })))
	assert.NilError(t, flat(soak("descriptors", func(i int) int { return 100 - i })))
	assert.ErrorContains(t, flat(soak("descriptors", func(i int) int { return 30 + i/10 })), "descriptors: 41, at first 3")
	assert.ErrorContains(t, flat(soak("KiB resident", func(i int) int { return 30_000 + 500*i })), "KiB resident")
	assert.ErrorContains(t, flat(soak("KiB pinned", func(i int) int { return i / 100 })), "KiB pinned")
	assert.ErrorContains(t, flat(nil), "samples")
	figure := filepath.Join(t.TempDir(), "soak.svg")
	res := result{Fabric: "mem0", soaked: soaked{Samples: soak("descriptors", func(int) int { return 7 })[:50]}}
	assert.Assert(t, !drawSoak(figure, []result{res}), "five minutes make no figure")
	res.Samples = soak("descriptors", func(int) int { return 7 })
	assert.Assert(t, drawSoak(figure, []result{res}))
	text, err := os.ReadFile(figure)
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(string(text), "at most 7, last 7"))
}

// Every test that the page names exists.
func TestDefectsNameTests(t *testing.T) {
	names := regexp.MustCompile(`\bTest\w+`).FindAllString(defects, -1)
	assert.Assert(t, len(names) > 10)
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, name := range names {
			found[name] = found[name] || bytes.Contains(b, []byte("\nfunc "+name+"(t *testing.T)"))
		}
		return err
	})
	assert.NilError(t, err)
	for _, name := range names {
		assert.Assert(t, found[name], "%s does not exist", name)
	}
}
