package udat

import "github.com/godat/godat/udat/internal/lockrank"

// The ranks of the package's locks: a goroutine that holds one takes only those of higher numbers.
// docs/locks.md has the same table with what each guards; tests with the build tag lockcheck panic
// on a lock that is taken against it.
type (
	rankCR           struct{}
	rankServicePoint struct{}
	rankModifying    struct{}
	rankBinding      struct{}
	rankEP           struct{}
	rankIA           struct{}
	rankRequests     struct{}
	rankRecvs        struct{}
	rankEVD          struct{}
	rankSRQ          struct{}
	rankRMR          struct{}
	rankLMR          struct{}
	rankWindows      struct{}
	rankCNO          struct{}
	rankFlusher      struct{}
	rankRegistry     struct{}
)

func (rankCR) Rank() (int, string)           { return 10, "CR.mu" }
func (rankServicePoint) Rank() (int, string) { return 20, "PSP.mu, RSP.mu" }
func (rankModifying) Rank() (int, string)    { return 30, "EP.modifying" }
func (rankBinding) Rank() (int, string)      { return 40, "RMR.posting" }
func (rankEP) Rank() (int, string)           { return 50, "EP.mu" }
func (rankIA) Rank() (int, string)           { return 60, "IA.mu" }
func (rankRequests) Rank() (int, string)     { return 70, "requestQueue.mu" }
func (rankRecvs) Rank() (int, string)        { return 80, "recvQueue.mu" }
func (rankEVD) Rank() (int, string)          { return 90, "EVD.mu" }
func (rankSRQ) Rank() (int, string)          { return 100, "SRQ.mu" }
func (rankRMR) Rank() (int, string)          { return 110, "RMR.mu" }
func (rankLMR) Rank() (int, string)          { return 120, "LMR.mu" }
func (rankWindows) Rank() (int, string)      { return 130, "windowTable.mu" }
func (rankCNO) Rank() (int, string)          { return 140, "CNO.mu" }
func (rankFlusher) Rank() (int, string)      { return 150, "flusher.mu" }
func (rankRegistry) Rank() (int, string)     { return 160, "providerRegistry.mu" }

type ranked[R lockrank.Rank] = lockrank.Mutex[R]
