// Package engine measures: it agrees with the other end on a plan of cases, connects, runs the loops of each case through package udat or
// cverbs over one narrow interface (link), and hands on what it found as results. Command datperf imports it, and package bench runs that.
//
// A server and a client, or both ends in one process, talk over a control connection (TCP); what a peer sends there is checked before anything is
// made of it. One goroutine drives all queue pairs of an end, and no loop allocates for an operation.
package engine
