package softnic

import "github.com/godat/godat/udat/internal/fabric"

// opBind is the operation that binds a window. Its value is that of IBV_WR_BIND_MW.
const opBind fabric.Opcode = 8

// Sinks reports whether op writes to memory of its initiator, as a read or an atomic does. The read
// depth limits such operations.
func Sinks(op fabric.Opcode) bool {
	return op == fabric.OpRead || op == fabric.OpCmpSwap || op == fabric.OpFetchAdd
}

func sendOpcode(op fabric.Opcode) fabric.WCOpcode {
	switch op {
	case fabric.OpWrite, fabric.OpWriteImm:
		return fabric.OpWCWrite
	case fabric.OpRead:
		return fabric.OpWCRead
	case fabric.OpCmpSwap:
		return fabric.OpWCCmpSwap
	case fabric.OpFetchAdd:
		return fabric.OpWCFetchAdd
	case fabric.OpLocalInv:
		return fabric.OpWCLocalInv
	case opBind:
		return fabric.OpWCBind
	default:
		return fabric.OpWCSend
	}
}
