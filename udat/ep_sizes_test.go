package udat_test

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

const largest = 16 << 20

// TestSizes transfers 1 byte to 16 MiB with every operation, and gets the completions by polling
// and by waiting.
func TestSizes(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		sizes := []int{1, 2, 7, 64, 255, 256, 1000, 1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20,
			4<<20 + 1, largest}
		if os.Getenv("GODAT_VM") != "" || testing.Short() {
			sizes = []int{1, 7, 256, 1025, 4096, 4097, 65537, 1 << 20, largest} // an emulated machine takes its time
		}
		from, to := a.lmr(largest, udat.PrivAll), b.lmr(largest, udat.PrivAll)
		most := int(min(a.ia.Device().Attr().MaxMessage, largest)) // a device that carries less takes several messages
		rng := rand.NewChaCha8([32]byte{1})
		for _, polled := range []bool{true, false} {
			take := completion
			if polled {
				take = completionNow
			}
			for _, n := range sizes {
				t.Run(fmt.Sprintf("%d bytes, polled %v", n, polled), func(t *testing.T) {
					off := largest - n
					source, sink := from.Bytes()[:n], to.Bytes()[off:]
					same := func(what string, got, want []byte) {
						t.Helper()
						assert.Equal(t, crc32.Checksum(got, castagnoli), crc32.Checksum(want, castagnoli), what)
					}
					parts := func(do func(at, n int)) {
						for at := 0; at < n; at += most {
							do(at, min(most, n-at))
						}
					}
					rng.Read(source)
					parts(func(at, n int) {
						assert.NilError(t, b.ep.PostRecv([]udat.LMRTriplet{to.Triplet(off+at, n)}, 1, 0))
						assert.NilError(t, a.ep.PostSend([]udat.LMRTriplet{from.Triplet(at, n)}, 2, 0))
						assert.Equal(t, take(t, b.recv, 1).Length, uint64(n))
						take(t, a.request, 2)
					})
					same("send", sink, source)

					rng.Read(source)
					parts(func(at, n int) {
						assert.NilError(t, a.ep.PostRDMAWrite([]udat.LMRTriplet{from.Triplet(at, n)}, 3, to.RMRTriplet(off+at, n), 0))
						assert.Equal(t, take(t, a.request, 3).Length, uint64(n))
					})
					// A message after the writes proves that their data has arrived: on iWARP a
					// write completes when TCP has accepted it.
					assert.NilError(t, b.ep.PostRecv(nil, 5, 0))
					assert.NilError(t, a.ep.PostSend(nil, 6, 0))
					take(t, a.request, 6)
					take(t, b.recv, 5)
					same("write", sink, source)

					rng.Read(sink)
					parts(func(at, n int) {
						assert.NilError(t, a.ep.PostRDMARead([]udat.LMRTriplet{from.Triplet(at, n)}, 4, to.RMRTriplet(off+at, n), 0))
						assert.Equal(t, take(t, a.request, 4).Length, uint64(n))
					})
					same("read", source, sink)
				})
			}
		}
		rule.Proves(t, "EP-SEND-01", "EP-RECV-01", "EP-WRITE-01", "EP-READ-01")
	})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
