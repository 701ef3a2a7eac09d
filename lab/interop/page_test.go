package main

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/leaktest"
	"github.com/godat/godat/lab/process"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A run of some cases replaces the results of these cases, whole rows in the order of the table.
// The page counts all.
func TestPartRun(t *testing.T) {
	res := func(name, server, client, failure string) result {
		return result{Name: name, Server: server, Client: client, Failure: failure, Attempts: 1}
	}
	before := []result{res("rping -V", library, library, ""), res("rping -V", goPeer, library, "broken"),
		res("dtest", library, library, ""), res("dtest", provider, provider, "broken"), res("gone", library, library, "")}
	again := res("rping -V", library, library, "")
	again.Attempts = 2
	excused := res("cmtime", library, library, "broken")
	excused.Explained = true
	all := merge(before, []result{excused, again})
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	assert.DeepEqual(t, names, []string{"dtest", "dtest", "rping -V", "cmtime"})
	page := string(markdown(all))
	for _, want := range []string{"| dtest | passed | **failed** |  |  |\n", "| rping -V | passed, attempt 2 |  |  |\n",
		"| cmtime | fails |", "2 passed, 1 failed; 1 fail for reasons of", "- `cmtime` fails with the C library alone"} {
		assert.Assert(t, strings.Contains(page, want), "%q is not in\n%s", want, page)
	}
	assert.Equal(t, strings.Count(page, "| dtest |"), 1)
	assert.Assert(t, !strings.Contains(page, "beside soft-iWARP"))

	// Results on soft-iWARP have rows and a table of their own.
	siw := res("rping -V", library, overTCP, "broken")
	siw.Device = "siw0"
	all = merge(all, []result{siw})
	page = string(markdown(all))
	for _, want := range []string{"| rping -V | passed, attempt 2 |  |  |\n", "| rping -V |  |  | **failed** |\n",
		"2 passed, 2 failed;"} {
		assert.Assert(t, strings.Contains(page, want), "%q is not in\n%s", want, page)
	}
	assert.Equal(t, strings.Count(page, "| rping -V |"), 2)
	assert.DeepEqual(t, merge(all, nil), all)
	for _, c := range cases {
		assert.Assert(t, len(c.endsOn("siw1")) > 2 || c.server == "", c.name)
		assert.Assert(t, len(c.endsOn("rxe0")) > 1 || c.peer == "setup", c.name)
	}
	// Names are keys.
	seen := map[string]bool{}
	for _, c := range cases {
		assert.Assert(t, !seen[c.name], "two cases %q", c.name)
		seen[c.name] = true
	}
}

// dapltest exits with status 0 even if it has failed, so its output decides.
func TestVerdict(t *testing.T) {
	transaction := dapltest("SR", "T -i 1 client SR 1 server SR 1")
	limits := limit("rpost", "posted", "")
	for _, c := range []struct {
		of     program
		prints string
		server bool
		fails  string
	}{
		{transaction, "Total WQE : 100", false, ""},
		{transaction, "Server: Transaction Test Finished", true, ""},
		{transaction, "Server: Transaction Test Finished", false, "it does not say"},
		{transaction, "Warning: dat_ep_connect is unexpected\nTotal WQE : 100", false, "it says"},
		{transaction, "DT_dat_evd_wait fails\nTotal WQE : 100", false, "it says"},
		{transaction, "Test[0]: dat_rsp_free error: DAT_INVALID_HANDLE\nTotal WQE : 100", false, "it says"},
		{limits, "dat_ep_post_recv fails: DAT_INSUFFICIENT_RESOURCES\n17 posted", false, ""},
		{limits, "dat_ep_post_recv fails: DAT_INVALID_HANDLE\n17 posted", false, "it says"},
	} {
		p, err := process.Start(time.Minute, nil, "printf", c.prints+"\\n")
		assert.NilError(t, err)
		err = c.of.finish(p, provider, c.server)
		if c.fails == "" {
			assert.NilError(t, err, c.prints)
		} else {
			assert.ErrorContains(t, err, c.fails, c.prints)
		}
	}
}
