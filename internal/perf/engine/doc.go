// Package engine runs measurements. It agrees with the peer on a plan of cases, connects, runs each
// case and returns results. The interface link hides whether a case runs through package udat or
// cverbs. Command datperf and the benchmarks in lab/bench import this package.
//
// A server and a client talk over a TCP control connection; two ends in one process talk over a
// pipe. Each end checks all messages of its peer. One goroutine drives all queue pairs of an end,
// and no loop allocates memory per operation.
package engine
