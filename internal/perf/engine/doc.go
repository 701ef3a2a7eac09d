// Package engine measures. It agrees with the peer on a plan of cases, connects, runs each case
// through package udat or cverbs behind one interface (link), and returns results. Command datperf
// and package bench import it.
//
// A server and a client, or both ends in one process, talk over a TCP control connection;
// everything that a peer sends there is checked. One goroutine drives all queue pairs of an end,
// and no loop allocates per operation.
package engine
