package rdmanet_test

import (
	"io"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/looptest"
	"github.com/godat/godat/rdmanet"
)

// TestSmallDevice: on a device with the smallest limits that doc.go names, and on one that
// refuses to resize completion queues, whatever its error, several connections work.
func TestSmallDevice(t *testing.T) {
	looptest.Run(t, func(s *looptest.Script) {
		scripts := [][]string{{looptest.Limit("max_qp_wr", 33), looptest.Limit("max_cqe", 66),
			looptest.Limit("max_qp_rd_atom", 1), looptest.Limit("max_qp_init_rd_atom", 1)},
			{looptest.Limit("max_qp_rd_atom", 0), looptest.Limit("max_qp_init_rd_atom", 0)}}
		for _, errno := range []syscall.Errno{syscall.EPROTONOSUPPORT, syscall.EINVAL, syscall.EPERM, syscall.ENOSYS} {
			scripts = append(scripts, []string{looptest.Fail("ibv_resize_cq", looptest.Each, errno)})
		}
		for _, script := range scripts {
			t.Run(strings.Join(script, ","), func(t *testing.T) {
				s.Set(script...)
				for range 6 {
					client, server := pair(t, "loop0", rdmanet.Dialer{}, rdmanet.ListenConfig{})
					_, err := client.Write([]byte("hello"))
					assert.NilError(t, err)
					got := make([]byte, 5)
					_, err = io.ReadFull(server, got)
					assert.NilError(t, err)
					assert.Equal(t, string(got), "hello")
				}
			})
		}
	})
}
