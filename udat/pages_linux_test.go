package udat_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestAddressSpace: if memory does not fit into the process's limit of address space, the error
// names the limit. If there is no limit, the error names none.
func TestAddressSpace(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		// Address space without memory: the limit is then a number of more than 32 bits.
		reserved, err := unix.Mmap(-1, 0, 5<<30, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		if err == nil { // else the process has a limit already
			defer unix.Munmap(reserved)
		}
		statm, err := os.ReadFile("/proc/self/statm")
		assert.NilError(t, err)
		pages, err := strconv.ParseUint(strings.Fields(string(statm))[0], 10, 64)
		assert.NilError(t, err)
		var before unix.Rlimit
		assert.NilError(t, unix.Getrlimit(unix.RLIMIT_AS, &before))
		if before.Cur == unix.RLIM_INFINITY {
			assert.Equal(t, udat.AddressLimit(unix.ENOMEM), "")
		}
		limit := pages*uint64(os.Getpagesize()) + 64<<20
		assert.NilError(t, unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: limit, Max: before.Max}))
		_, err = e.ia.AllocLMR(e.pz, 256<<20, udat.PrivAll)
		assert.NilError(t, unix.Setrlimit(unix.RLIMIT_AS, &before))
		refused(t, err, udat.InsufficientResources, udat.SubResourceMemory)
		assert.ErrorContains(t, err, "the limit of address space (RLIMIT_AS, ulimit -v) is "+strconv.FormatUint(limit, 10))
		l, err := e.ia.AllocLMR(e.pz, 256<<20, udat.PrivAll)
		assert.NilError(t, err)
		assert.NilError(t, l.Free())
	})
}
