package iwarp

import "fmt"

// Fault is the reason in a terminate message. The decoders' errors wrap it. Its highest 4 bits are
// the layer, the next 4 bits are the type, and the lowest 8 bits are the code.
type Fault uint16

// The faults that the RFCs name.
const (
	// RDMAP (RFC 5040), type 0: local errors, type 1: protection, type 2: operation.
	FaultLocal           Fault = 0x0000
	FaultKey             Fault = 0x0100
	FaultBounds          Fault = 0x0101
	FaultAccess          Fault = 0x0102
	FaultKeyStream       Fault = 0x0103
	FaultWrap            Fault = 0x0104
	FaultProtectInv      Fault = 0x0109 // a key that cannot be invalidated
	FaultProtection      Fault = 0x01FF
	FaultVersion         Fault = 0x0205
	FaultOpcode          Fault = 0x0206
	FaultStream          Fault = 0x0207
	FaultGlobal          Fault = 0x0208
	FaultInvalidate      Fault = 0x0209
	FaultOperation       Fault = 0x02FF
	FaultLength                = FaultOperation // a length that the opcode cannot have; it has no code of its own
	FaultDDP             Fault = 0x1000         // DDP (RFC 5041), type 0: local errors, type 1: tagged, type 2: untagged
	FaultTaggedKey       Fault = 0x1100
	FaultTaggedBounds    Fault = 0x1101
	FaultTaggedStream    Fault = 0x1102
	FaultTaggedWrap      Fault = 0x1103
	FaultTaggedVersion   Fault = 0x1104
	FaultQueue           Fault = 0x1201
	FaultNoBuffer        Fault = 0x1202
	FaultMSN             Fault = 0x1203
	FaultMO              Fault = 0x1204
	FaultTooLong         Fault = 0x1205
	FaultUntaggedVersion Fault = 0x1206
	FaultClosed          Fault = 0x2001 // MPA, RFC 5044 and 6581
	FaultCRC             Fault = 0x2002
	FaultMarker          Fault = 0x2003
	FaultSetup           Fault = 0x2004
	FaultMPA             Fault = 0x2005
	FaultReadDepth       Fault = 0x2006
	FaultNoReady         Fault = 0x2007
)

var faultNames = map[Fault]string{
	FaultLocal: "local catastrophic error", FaultKey: "invalid key", FaultBounds: "out of bounds",
	FaultAccess: "access right missing", FaultKeyStream: "key of another protection zone",
	FaultWrap: "offset plus length overflows", FaultProtectInv: "key cannot be invalidated",
	FaultProtection: "protection error", FaultVersion: "unknown RDMAP version",
	FaultOpcode: "unexpected opcode", FaultStream: "catastrophic error of the connection",
	FaultGlobal: "catastrophic error", FaultInvalidate: "key cannot be invalidated",
	FaultOperation: "invalid operation", FaultDDP: "local catastrophic error",
	FaultTaggedKey: "invalid key", FaultTaggedBounds: "out of bounds",
	FaultTaggedStream: "key of another protection zone", FaultTaggedWrap: "offset plus length overflows",
	FaultTaggedVersion: "unknown DDP version", FaultQueue: "invalid queue number",
	FaultNoBuffer: "no receive posted", FaultMSN: "message number out of order",
	FaultMO: "offset in the message out of order", FaultTooLong: "message too long for the receive",
	FaultUntaggedVersion: "unknown DDP version", FaultClosed: "TCP connection lost",
	FaultCRC: "wrong checksum", FaultMarker: "marker and length differ", FaultSetup: "invalid set-up",
	FaultMPA: "local catastrophic error", FaultReadDepth: "read depth too small",
	FaultNoReady: "no common ready message",
}

func (f Fault) Error() string {
	layer := fmt.Sprintf("layer %d", f.Layer())
	if names := []string{"RDMAP", "DDP", "MPA"}; int(f.Layer()) < len(names) {
		layer = names[f.Layer()]
	}
	if name, known := faultNames[f]; known {
		return layer + ": " + name
	}
	return fmt.Sprintf("%s: type %d, code %d", layer, f>>8&15, f&0xFF)
}

// Layer returns the layer: 0 RDMAP, 1 DDP, 2 MPA.
func (f Fault) Layer() uint8 { return uint8(f >> 12) }

// fault returns an error that wraps f and says what was wrong.
func fault(f Fault, format string, args ...any) error {
	return fmt.Errorf("%w: %s", f, fmt.Sprintf(format, args...))
}
