package udat

import "github.com/godat/godat/udat/internal/fabric"

// DeviceAttr gives tests the limits and abilities of the adapter's device.
func DeviceAttr(ia *IA) fabric.Attr { return ia.device.Attr() }

// CompletionQueue gives tests the dispatcher's completion queue.
func CompletionQueue(e *EVD) fabric.CQ { return e.cq }
