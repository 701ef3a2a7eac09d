package iwarp

import (
	"testing"

	"gotest.tools/v3/assert"
)

// TestFaultNumbers: layer, type and code of every fault are those of RFC 5040, 5041, 5044 and 6581,
// and each has a text.
func TestFaultNumbers(t *testing.T) {
	all := []struct {
		fault Fault
		want  uint16
		words string
	}{
		{FaultLocal, 0x0000, "RDMAP: local catastrophic error"},
		{FaultKey, 0x0100, "RDMAP: invalid key"},
		{FaultBounds, 0x0101, "RDMAP: out of bounds"},
		{FaultAccess, 0x0102, "RDMAP: access right missing"},
		{FaultKeyStream, 0x0103, "RDMAP: key of another protection zone"},
		{FaultWrap, 0x0104, "RDMAP: offset plus length overflows"},
		{FaultProtectInv, 0x0109, "RDMAP: key cannot be invalidated"},
		{FaultProtection, 0x01FF, "RDMAP: protection error"},
		{FaultVersion, 0x0205, "RDMAP: unknown RDMAP version"},
		{FaultOpcode, 0x0206, "RDMAP: unexpected opcode"},
		{FaultStream, 0x0207, "RDMAP: catastrophic error of the connection"},
		{FaultGlobal, 0x0208, "RDMAP: catastrophic error"},
		{FaultInvalidate, 0x0209, "RDMAP: key cannot be invalidated"},
		{FaultOperation, 0x02FF, "RDMAP: invalid operation"},
		{FaultLength, 0x02FF, "RDMAP: invalid operation"},
		{FaultDDP, 0x1000, "DDP: local catastrophic error"},
		{FaultTaggedKey, 0x1100, "DDP: invalid key"},
		{FaultTaggedBounds, 0x1101, "DDP: out of bounds"},
		{FaultTaggedStream, 0x1102, "DDP: key of another protection zone"},
		{FaultTaggedWrap, 0x1103, "DDP: offset plus length overflows"},
		{FaultTaggedVersion, 0x1104, "DDP: unknown DDP version"},
		{FaultQueue, 0x1201, "DDP: invalid queue number"},
		{FaultNoBuffer, 0x1202, "DDP: no receive posted"},
		{FaultMSN, 0x1203, "DDP: message number out of order"},
		{FaultMO, 0x1204, "DDP: offset in the message out of order"},
		{FaultTooLong, 0x1205, "DDP: message too long for the receive"},
		{FaultUntaggedVersion, 0x1206, "DDP: unknown DDP version"},
		{FaultClosed, 0x2001, "MPA: TCP connection lost"},
		{FaultCRC, 0x2002, "MPA: wrong checksum"},
		{FaultMarker, 0x2003, "MPA: marker and length differ"},
		{FaultSetup, 0x2004, "MPA: invalid set-up"},
		{FaultMPA, 0x2005, "MPA: local catastrophic error"},
		{FaultReadDepth, 0x2006, "MPA: read depth too small"},
		{FaultNoReady, 0x2007, "MPA: no common ready message"},
	}
	named := map[Fault]bool{}
	for _, c := range all {
		assert.Equal(t, uint16(c.fault), c.want, c.words)
		assert.Equal(t, c.fault.Error(), c.words)
		assert.Equal(t, uint16(c.fault.Layer()), c.want>>12)
		named[c.fault] = true
	}
	for f := range 1 << 16 { // no other value has a text
		_, known := faultNames[Fault(f)]
		assert.Equal(t, known, named[Fault(f)], "0x%04x", f)
	}
}

// TestNames: each opcode and control message has a text of its own.
func TestNames(t *testing.T) {
	ops := []string{"write", "read request", "read response", "send", "send with invalidate", "solicited send",
		"solicited send with invalidate", "terminate", "immediate data", "solicited immediate data", "atomic request",
		"atomic response", "send with immediate data", "solicited send with immediate data", "opcode 14", "control"}
	for op, want := range ops {
		assert.Equal(t, Opcode(op).String(), want)
	}
	controls := []string{"hello", "acknowledgement", "ask", "grant", "control message 4", "control message 5"}
	for c, want := range controls {
		assert.Equal(t, Control(c).String(), want)
	}
	assert.Equal(t, Control(255).String(), "control message 255")
}
