package softnic

import "github.com/godat/godat/udat/internal/fabric"

// opBind is the operation of a window's binding; the value is that of verbs, where it is posted the
// same way.
const opBind fabric.Opcode = 8

// Sinks reports whether op writes to its local memory, and so counts as a read.
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
