package udat

import (
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/memfabric"
	"github.com/godat/godat/udat/internal/verbsfabric"
)

// fabrics are all fabrics: the verbs of this host, and the one inside this process. No other file
// names them.
func fabrics() []fabric.Fabric { return []fabric.Fabric{verbs, mem} }

var (
	verbs = verbsfabric.New()
	mem   = memfabric.Default()
)
