package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// installed returns what this host's headers declare.
func installed(t *testing.T) declared {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler here")
	}
	d, err := readHeaders()
	if err != nil && strings.Contains(err.Error(), verbsHeader) {
		t.Skip("no headers of rdma-core here")
	}
	assert.NilError(t, err)
	assert.Assert(t, len(d.functions) > 100 && len(d.enums) > 30, "%d functions, %d enumerations", len(d.functions),
		len(d.enums))
	return d
}

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(root(), name))
	assert.NilError(t, err)
	return string(text)
}

// TestParse: parse returns the functions, with and without bodies, and the enumerations of the two
// headers, and nothing of other files.
func TestParse(t *testing.T) {
	d := parse(`# 1 "/usr/include/infiniband/other.h" 1
int other(void);
enum other { OTHER };
# 7 "/usr/include/infiniband/verbs.h" 2
struct a { int (*call)(struct a *a); enum in_a { IN_A } e; };
enum __attribute__((packed)) { NAMELESS = 1 };
enum e { E1 = 1 << 2, E2,
 E3 };
typedef int (*pointer)(int a);
struct a *
first(struct a *a, const void *b,
 uint8_t c[6]) __attribute__((nonnull(1)));
static inline int second(void)
{ if (1) { return 2; } return 3; }
extern int variable;
# 9 "/usr/include/rdma/rdma_cma.h" 2
int __attribute__((const)) third(int a);
`)
	want := declared{
		functions: []function{
			{verbsHeader, "first", false, "struct a *", "struct a *a, const void *b, uint8_t c[6]"},
			{verbsHeader, "second", true, "static inline int", "void"},
			{cmHeader, "third", false, "int", "int a"},
		},
		enums: []enum{{verbsHeader, "e", []string{"E1", "E2", "E3"}}},
	}
	assert.Equal(t, fmt.Sprintf("%+v", d), fmt.Sprintf("%+v", want))
	text, err := calls(d, map[string]bool{"first": true, "second": true, "third": true},
		map[string]string{"first": "V_1.2", "third": "V_1", "unused": "V_1"})
	assert.NilError(t, err)
	assert.Equal(t, strings.TrimPrefix(text, callsHead),
		`POINTER(struct a *, first, V_1.2, (struct a *a, const void *b, uint8_t c[6]), (a, b, c))
OTHER(int, third, V_1, (int a), (a))
`)
	text, err = calls(d, map[string]bool{"third": true}, map[string]string{"first": "V_1.2", "third": "V_1"})
	assert.NilError(t, err)
	assert.Equal(t, strings.TrimPrefix(text, callsHead), "OTHER(int, third, V_1, (int a), (a))\n")
	_, err = calls(d, map[string]bool{"third": true}, map[string]string{"first": "V_1.2"})
	assert.ErrorContains(t, err, "third")
}

// TestCalls: cverbs/libcalls.h lists each library function that cverbs calls, with its symbol
// version. It lists no other function.
func TestCalls(t *testing.T) {
	d := installed(t)
	version, err := versions()
	assert.NilError(t, err)
	used, err := called(filepath.Join(root(), "cverbs"))
	assert.NilError(t, err)
	want, err := calls(d, used, version)
	assert.NilError(t, err)
	assert.Equal(t, read(t, "cverbs/libcalls.h"), want, "go -C lab run ./verbs")
}

// TestPage: docs/verbs.md has a line for each function and enumeration of the installed headers.
// Each function that is bound has a test that calls it, and each other function has a reason.
func TestPage(t *testing.T) {
	d := installed(t)
	w, err := readWorld()
	assert.NilError(t, err)
	for _, p := range problems(d, w.b, w.rows(), w.notes) {
		t.Error(p)
	}
	have := read(t, "docs/verbs.md")
	for _, r := range w.rows() {
		assert.Check(t, strings.Contains(have, "\n| `"+r.name+"` |"), "docs/verbs.md lacks %s", r.name)
	}
	if strings.Count(have, "\n| `") == strings.Count(w.page(), "\n| `") { // the page was generated from these headers
		assert.Equal(t, have, w.page(), "go -C lab run ./verbs")
	}
	for test := range w.seen {
		assert.Check(t, w.b.tests[test] != nil, "seen.tsv: there is no %s", test)
	}
}

// TestProblems: problems finds each kind of error in the page, each alone.
func TestProblems(t *testing.T) {
	good := func() (declared, *binding, map[string]noted, map[string][]string) {
		return declared{
				functions: []function{{verbsHeader, "ibv_a", false, "int", "int a"}, {cmHeader, "rdma_b", true, "int", "void"}},
				enums:     []enum{{verbsHeader, "ibv_e", []string{"E1", "E2"}}},
			}, &binding{
				goNames: map[string][]string{"ibv_a": {"(*T).A", "(*T).B"}},
				goTypes: map[string]string{"ibv_e": "E"},
				makers:  map[string][]string{"T": {"NewT"}},
				calls:   traced{},
				tests: map[string]*source{
					"TestBoth":  {"TestBoth", map[string]bool{"helper": true, "A": true, "C": true}},
					"TestOther": {"TestOther", map[string]bool{"A": true}}, // a method of another type
					"TestBad":   {"TestBad", map[string]bool{"A": true, "NewT": true}},
					"TestA":     {"TestA", map[string]bool{"helper": true}},
					"TestC":     {"TestC", map[string]bool{"C": true}},
					"helper":    {"helper", map[string]bool{"A": true, "NewT": true}},
				},
			}, map[string]noted{"rdma_b": {"", "only for drivers"},
				"TestBad": {"", "errors"}}, map[string][]string{"TestA": {"dev0"}}
	}
	for name, c := range map[string]struct {
		spoil func(d *declared, b *binding, notes map[string]noted, seen map[string][]string)
		want  string
	}{
		"all is well": {func(*declared, *binding, map[string]noted, map[string][]string) {}, ""},
		"a new function": {func(d *declared, _ *binding, _ map[string]noted, _ map[string][]string) {
			d.functions = append(d.functions, function{name: "ibv_new"})
		}, "ibv_new is new"},
		"a new enumeration": {func(d *declared, _ *binding, _ map[string]noted, _ map[string][]string) {
			d.enums = append(d.enums, enum{name: "ibv_new"})
		}, "enum ibv_new is new"},
		"no test": {func(_ *declared, b *binding, _ map[string]noted, _ map[string][]string) {
			b.tests = map[string]*source{"TestC": b.tests["TestC"]}
		}, "ibv_a ((*T).A): no test calls it"},
		"another test": {func(_ *declared, _ *binding, notes map[string]noted, _ map[string][]string) {
			notes["ibv_a"] = noted{"TestC", ""}
		}, "TestC does not call"},
		"another test on the loop device": {func(_ *declared, b *binding, notes map[string]noted, seen map[string][]string) {
			b.calls["TestOther"], seen["TestBoth"] = []string{"ibv_a"}, []string{"loop0"}
			notes["ibv_a"] = noted{"TestBoth", ""}
		}, "TestBoth does not call it on the loop device, but [TestOther] do"},
		"no device": {func(_ *declared, _ *binding, _ map[string]noted, seen map[string][]string) {
			delete(seen, "TestA")
		}, "TestA has passed on no device"},
		"an old note": {func(_ *declared, _ *binding, notes map[string]noted, _ map[string][]string) {
			notes["ibv_old"] = noted{"", "deprecated"}
		}, "the headers have no ibv_old"},
		"a wrong name": {func(_ *declared, b *binding, _ map[string]noted, _ map[string][]string) {
			b.goNames["ibv_wrong"] = []string{"Wrong"}
		}, "[Wrong] implements ibv_wrong"},
	} {
		d, b, notes, seen := good()
		c.spoil(&d, b, notes, seen)
		all := rows(d, b, notes, seen)
		found := strings.Join(problems(d, b, all, notes), "\n")
		assert.Check(t, (found == "") == (c.want == "") && strings.Contains(found, c.want), "%s: %q", name, found)
		if c.want == "" {
			text := page(d, b, all, notes)
			for _, want := range []string{
				"2 functions: 1 bound (50 %), 1 not. Of those bound, 1 are called by a test, 1 ran on a",
				"| `ibv_a` | `(*T).A`, `(*T).B` | `TestA` | dev0 |", "| `rdma_b` |  |  | only for drivers |",
				"| `ibv_e` | `E` | 0 of 2 |  |",
			} {
				assert.Check(t, strings.Contains(text, want), "%s lacks %q", text, want)
			}
		}
	}
}

// TestRecord: the tests that have passed on a device replace the device's old entries. Entries of
// other devices stay.
func TestRecord(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	assert.NilError(t, os.WriteFile(log, []byte("=== RUN   TestA\n--- PASS: TestA (0.00s)\r\n"+
		"    --- PASS: TestA/sub (0.00s)\n"+
		"--- SKIP: TestB (0.00s)\n--- FAIL: TestC (0.00s)\n"), 0o600))
	seen := map[string][]string{"TestA": {"dev1"}, "TestB": {"dev0", "dev1"}, "TestC": {"dev0"}}
	assert.NilError(t, record("dev0", log, seen))
	assert.Equal(t, seenText(seen), "test\tpassed on\nTestA\tdev0 dev1\nTestB\tdev1\n")
}
