package udat_test

import (
	"fmt"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// BenchmarkWaitPingPong measures the round trip of 8-byte Sends between two goroutines that both
// wait for events, with spinning and without.
//
//	go test -run xxx -bench WaitPingPong ./udat                      (GODAT_TEST_DEVICE adds devices)
func BenchmarkWaitPingPong(b *testing.B) {
	for _, dev := range devices() {
		for _, spin := range []time.Duration{0, 50 * time.Microsecond} {
			b.Run(fmt.Sprintf("%s/spin=%v", dev, spin), func(b *testing.B) {
				ia, err := udat.Open(dev, udat.WithSpin(spin))
				assert.NilError(b, err)
				defer ia.Close(udat.CloseAbrupt)
				pz, err := ia.CreatePZ()
				assert.NilError(b, err)
				mem, err := ia.AllocLMR(pz, 4096, udat.PrivAll)
				assert.NilError(b, err)
				iov := []udat.LMRTriplet{mem.Triplet(0, 8)}
				var dto, conn [2]*udat.EVD
				var ep [2]*udat.EP
				for i := range ep {
					dto[i], err = ia.CreateEVD(64, udat.EVDDTO, nil)
					assert.NilError(b, err)
					conn[i], err = ia.CreateEVD(8, udat.EVDConnection|udat.EVDCR, nil)
					assert.NilError(b, err)
					ep[i], err = ia.CreateEP(pz, dto[i], dto[i], conn[i], nil)
					assert.NilError(b, err)
					assert.NilError(b, ep[i].PostRecv(iov, 0, 0))
				}
				_, psp, err := ia.CreatePSPAny(conn[1], udat.PSPConsumer)
				assert.NilError(b, err)
				assert.NilError(b, ep[0].Connect(ia.Addr(), psp.Qual(), patience, nil, 0, 0))
				ev, _, err := conn[1].Wait(patience, 1)
				assert.NilError(b, err)
				assert.NilError(b, ev.CR.Accept(ep[1], nil))
				for i := range conn {
					_, _, err = conn[i].Wait(patience, 1)
					assert.NilError(b, err)
				}
				// turn waits for a message and posts the next receive.
				turn := func(i int) {
					_, _, err := dto[i].Wait(patience, 1)
					if err == nil {
						err = ep[i].PostRecv(iov, 0, 0)
					}
					if err != nil {
						panic(err)
					}
				}
				rounds := b.N
				done := make(chan struct{})
				go func() {
					for range rounds {
						turn(1)
						ep[1].PostSend(iov, 0, udat.CompletionSuppress)
					}
					close(done)
				}()
				b.ResetTimer()
				for range rounds {
					ep[0].PostSend(iov, 0, udat.CompletionSuppress)
					turn(0)
				}
				<-done
			})
		}
	}
}
