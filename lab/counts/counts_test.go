package main

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestCounts: no operation of ours exceeds the table twice in a row.
func TestCounts(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("instructions are counted on Linux, amd64, only")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler here")
	}
	was, err := readTable()
	assert.NilError(t, err)
	now, err := measure("")
	assert.NilError(t, err)
	t.Logf("with %s:\n%s", runtime.Version(), table(now))
	assert.Equal(t, len(now), len(was), "the table has other operations: go -C lab run ./counts -write")
	for i := range now {
		assert.Equal(t, now[i].key(), was[i].key())
		if worse := now[i].worse(was[i]); worse != "" {
			again, err := measure(now[i].key())
			assert.NilError(t, err)
			t.Logf("%s; measured again:\n%s", worse, table(again))
			if worse = again[0].worse(was[i]); worse != "" {
				t.Errorf("%s (%s; if that is wanted: go -C lab run ./counts -write)", worse, runtime.Version())
			}
		}
	}
}

// TestWorse: a figure that is more than 3 percent higher is worse, for each figure alone. A smaller
// difference is not.
func TestWorse(t *testing.T) {
	was := row{"udat", "post", 1000, 0, 0}
	for _, c := range []struct {
		now  row
		want string
	}{
		{row{"udat", "post", 1030, 0, 0}, ""},
		{row{"udat", "post", 500, 0, 0}, ""},
		{row{"udat", "post", 1031, 0, 0}, "takes 1031 instructions, 1000 before"},
		{row{"udat", "post", 1050, 0, 0}, "takes 1050 instructions, 1000 before"},
		{row{"udat", "post", 1000, 1. / 16, 0}, ""}, // once, by chance
		{row{"udat", "post", 1000, 1, 0}, "makes 1 system calls, 0 before"},
		{row{"udat", "post", 1000, 0, 0.1}, "allocates 0.1 times, 0 before"},
	} {
		worse := c.now.worse(was)
		assert.Assert(t, strings.HasSuffix(worse, c.want) && (worse == "") == (c.want == ""), "%v: %s", c.now, worse)
	}
	goes := row{"tcp", "round trip", 1000, 4, 0}
	assert.Equal(t, row{"tcp", "round trip", 1100, 4, 1. / 16}.worse(goes), "")
	assert.Equal(t, row{"tcp", "round trip", 1000, 5, 0}.worse(goes), "")
	assert.Assert(t, row{"tcp", "round trip", 1101, 4, 0}.worse(goes) != "")
	assert.Assert(t, row{"tcp", "round trip", 1000, 6, 0}.worse(goes) != "")
	for _, layer := range []string{"C", "TCP"} { // not ours
		assert.Equal(t, row{layer, "post", 2000, 8, 9}.worse(row{layer, "post", 1000, 4, 0}), "")
	}
	many := row{"udat", "accept", 1000, 6, 25}
	assert.Equal(t, row{"udat", "accept", 1000, 6, 50}.worse(many), "")
	assert.Assert(t, row{"udat", "accept", 1000, 6, 51}.worse(many) != "")
	assert.Equal(t, row{"udat", "accept", 1400, 6, 25}.worse(many), "")
	assert.Assert(t, row{"udat", "accept", 1401, 6, 25}.worse(many) != "")
}

// TestTable: parse reads what table writes, and refuses what is not a table.
func TestTable(t *testing.T) {
	rows := []row{{"C", "post", 611, 0, 0}, {"udat", "accept", 17046, 6.0625, 27.9}}
	again, err := parse(table(rows))
	assert.NilError(t, err)
	assert.Equal(t, len(again), 2)
	for i := range rows {
		assert.Equal(t, again[i], rows[i])
	}
	for _, bad := range []string{"", "C\tpost\t1\t0\t0\n", header + "C\tpost\t1\t0\n", header + "C\tpost\tx\t0\t0\n"} {
		_, err := parse(bad)
		assert.ErrorContains(t, err, "counts.tsv", "%q", bad)
	}
}
