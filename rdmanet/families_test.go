package rdmanet

import (
	"context"
	"errors"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
)

// TestFamilies: Dial tries the addresses of the second family when the first one has failed, or
// after 300 ms, takes the first success and gives up the other. The error names both.
func TestFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keep = 7 * time.Second // an adapter of this bubble
		l, err := (&ListenConfig{Device: memDevice, KeepAlive: keep}).Listen(t.Context(), Network, ":0")
		assert.NilError(t, err)
		defer l.Close()
		deaf, requests := unanswered(t)
		six := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.IPv6Loopback(), port) }
		four := func(port uint16) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
		}
		good, silent, nobody := addrOf(l.Addr()).Port(), deaf.Port(), uint16(9)
		for _, c := range []struct {
			addrs []netip.AddrPort
			took  time.Duration
			want  string // the addresses that are tried
			err   error
		}{
			{[]netip.AddrPort{six(silent), four(good)}, secondFamily, "6s 4g", nil},
			{[]netip.AddrPort{four(silent), six(good)}, secondFamily, "4s 6g", nil},
			{[]netip.AddrPort{six(nobody), four(good)}, 0, "6n 4g", nil},
			{[]netip.AddrPort{six(good), four(silent)}, 0, "6g", nil},
			{[]netip.AddrPort{six(nobody), four(nobody), six(good)}, 0, "6n 6g", nil},
			{[]netip.AddrPort{six(nobody), four(nobody)}, 0, "6n 4n", syscall.ECONNREFUSED},
			{[]netip.AddrPort{six(nobody), six(nobody)}, 0, "6n 6n", syscall.ECONNREFUSED},
			{[]netip.AddrPort{six(silent), four(nobody)}, 5 * time.Second, "6s 4n", context.DeadlineExceeded},
			{[]netip.AddrPort{six(nobody), four(silent)}, 5 * time.Second, "6n 4s", syscall.ECONNREFUSED},
		} {
			tried, ended := "", 0
			var mu sync.Mutex
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				ConnectStart: func(_, addr string) {
					mu.Lock()
					defer mu.Unlock()
					a := netip.MustParseAddrPort(addr)
					if tried != "" {
						tried += " "
					}
					tried += map[bool]string{true: "4", false: "6"}[a.Addr().Is4()] +
						map[uint16]string{good: "g", silent: "s", nobody: "n"}[a.Port()]
				},
				ConnectDone: func(string, string, error) { mu.Lock(); ended++; mu.Unlock() },
			})
			d := Dialer{Device: memDevice, Timeout: 5 * time.Second, KeepAlive: keep}
			cfg, device, err := d.config()
			assert.NilError(t, err)
			ctx, cancel := context.WithTimeout(ctx, d.Timeout)
			began := time.Now()
			conn, err := d.dialEach(ctx, Network, cfg, device, c.addrs)
			took := time.Since(began)
			assert.Assert(t, took >= c.took-time.Second && took < c.took+100*time.Millisecond, "%v: after %v", c.addrs, took)
			if c.took == secondFamily {
				assert.Assert(t, took >= secondFamily, "%v: after %v", c.addrs, took)
			}
			if c.err == nil {
				assert.NilError(t, err)
				conn.Close()
				accepted, err := l.AcceptConn()
				assert.NilError(t, err)
				accepted.Close()
			} else {
				assert.Assert(t, errors.Is(err, c.err), "%v: %v", c.addrs, err)
				if c.addrs[0].Addr() != c.addrs[1].Addr() {
					assert.ErrorContains(t, err, c.addrs[1].String()+": ")
				}
			}
			synctest.Wait()
			assert.Equal(t, tried, c.want)
			assert.Equal(t, ended, len(c.want)/3+1, "an attempt goes on")
			cancel()
			for {
				if ev, err := requests.Dequeue(); err != nil {
					break
				} else if err := ev.CR.Reject(nil); err != nil {
					t.Log(err)
				}
			}
		}
	})
}
