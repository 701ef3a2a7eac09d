package rdmanet

import (
	"fmt"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// TestHelloAndControl: each field that one end encodes is decoded alike by the other.
func TestHelloAndControl(t *testing.T) {
	full := hello{immediate: true, slots: 1024, ring: remoteRing{addr: 0xfedcba9876540000, key: 0x89abcdef, size: 1 << 30}}
	for _, h := range []hello{
		full, {slots: 16, ring: remoteRing{size: minRing}}, {immediate: true, slots: 16, ring: remoteRing{size: minRing}},
		{slots: 517, ring: remoteRing{addr: 1 << 40, key: 1, size: 8192}},
	} {
		got, err := decodeHello(h.encode())
		assert.NilError(t, err)
		assert.Equal(t, got, h)
	}
	b := make([]byte, controlSize)
	for k := kindCredit; k < kinds; k++ {
		for _, m := range []control{
			{kind: k}, {kind: k, slots: 0xfedcba98}, {kind: k, limit: 0xfedcba9876543210}, {kind: k, value: 0x89abcdef01234567},
			{kind: k, key: 0x89abcdef}, {kind: k, size: 1 << 30},
		} {
			m.encode(b)
			got, err := decodeControl(b)
			assert.NilError(t, err)
			assert.Equal(t, got, m)
		}
	}
	for _, k := range []kind{0, kinds, 255} {
		control{kind: k}.encode(b)
		_, err := decodeControl(b)
		assert.ErrorContains(t, err, "control message of kind")
	}
}

// TestRefusalNamesLimit: a peer that is refused because this host has reached a limit reads the
// limit's name and value, however long the error's text is.
func TestRefusalNamesLimit(t *testing.T) {
	for limit, cause := range map[string]error{
		"the locked-memory limit of the process (RLIMIT_MEMLOCK) is 1048576 bytes": fmt.Errorf("cverbs: ibv_reg_mr: "+
			"%w (8192 bytes were asked for; the locked-memory limit of the process (RLIMIT_MEMLOCK) is 1048576 bytes: "+
			"raise it with ulimit -l, LimitMEMLOCK= of systemd, or --ulimit memlock of a container)", syscall.ENOMEM),
		"the open-file limit of the process (RLIMIT_NOFILE) is 1024": fmt.Errorf("cverbs: ibv_create_comp_channel: "+
			"%w (the open-file limit of the process (RLIMIT_NOFILE) is 1024: raise it with ulimit -n, LimitNOFILE= of "+
			"systemd, or --ulimit nofile of a container)", syscall.EMFILE),
		"cverbs: ibv_create_qp: cannot allocate memory": fmt.Errorf("cverbs: ibv_create_qp: %w", syscall.ENOMEM),
	} {
		text := innermost(fmt.Errorf("udat: a connection: %w", fmt.Errorf("insufficient resources: %w", cause)))
		why, busy := decodeRefusal(encodeRefusal(refusedBusy, cannotMake+text))
		assert.Assert(t, busy)
		assert.Equal(t, why[:min(len(why), len(cannotMake+limit))], cannotMake+limit)
	}
}
