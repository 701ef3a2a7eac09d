package main

import "strings"

// What an end of a case is made of.
const (
	library  = "C"     // the program over the C library: libdaplofa, librdmacm
	provider = "godat" // the program over libdat2 and godat's provider
	goPeer   = "Go"    // a program of the folder peer, on package udat
)

// pair are the ends of a case.
type pair struct{ server, client string }

var (
	// The C programs among themselves come first: that says whose fault a failure is.
	dat = []pair{{library, library}, {provider, provider}, {provider, library}, {library, provider}}
	cm  = []pair{{library, library}, {goPeer, library}, {library, goPeer}}
	one = []pair{{library, library}}
)

// side is the TCP port by which dtest, dtestx and dtestcm agree.
const side = 15828

// program is a case: two command lines, in which IA and ADDR are replaced.
type program struct {
	name           string
	server, client string
	quit           string // asks the server to end; else it ends with its client
	stays          bool   // the server never ends: it is killed
	says           string // by the server when it listens
	port           int    // TCP, of the server when it listens
	peer           string // its Go counterpart
	ends           []pair
}

// dtest is the program with the given flags, or another of its family.
func dtest(name, flags string) program {
	return program{name: strings.TrimSpace(name + flags[strings.LastIndex(flags, ",")+1:]), port: side, ends: dat,
		server: name + " -P IA -s " + strings.ReplaceAll(flags, ",", ""),
		client: name + " -P IA -h ADDR " + strings.ReplaceAll(flags, ",", "")}
}

// dapltest is a test of the program, asked for by the client.
func dapltest(name, test string) program {
	return program{name: "dapltest " + name, says: "Service Point Ready", ends: dat, server: "dapltest -T S -D IA",
		client: "dapltest " + test[:len("-T T")] + " -s ADDR -D IA" + test[len("-T T"):], quit: "dapltest -T Q -s ADDR -D IA"}
}

var cases = []program{
	dtest("dtest", "-b 4096 -B 10,"),
	dtest("dtest", "-b 4096 -B 10, -w"),
	dtest("dtest", "-b 4096 -B 10, -W"),
	dtest("dtest", "-b 4096 -B 10, -c"),
	dtest("dtest", "-b 4096 -B 10, -p"),
	dtest("dtest", "-b 4096 -B 10, -u"),
	dtest("dtestx", ""),
	dtest("dtestcm", "-c 20 -b 5,"),
	dtest("dtestcm", "-c 10 -b 5, -m"),
	{name: "dtestsrq", server: "dtestsrq -P IA", client: "dtestsrq -P IA -h ADDR", ends: dat},
	dapltest("T SR", "-T T -i 10 -t 1 -w 1 client SR 4096 server SR 4096"),
	dapltest("T RW RR", "-T T -i 10 -t 2 -w 2 -V client SR 1024 2 server SR 1024 client RW 4096 server RR 512"),
	dapltest("P RW", "-T P -i 100 -p 8 RW 4096"),
	dapltest("P RR", "-T P -i 100 -p 4 RR 4096"),
	{name: "rping", server: "rping -s -C 10 -V -a ADDR", client: "rping -c -C 10 -V -a ADDR", peer: "rping", ends: cm},
	{name: "rping -P", server: "rping -s -P -V -a ADDR", client: "rping -c -C 10 -V -a ADDR", peer: "rping", stays: true,
		ends: []pair{{library, library}, {library, goPeer}}},
	{name: "ucmatose", server: "ucmatose -c 4 -C 4 -b ADDR", client: "ucmatose -c 4 -C 4 -s ADDR", ends: one},
	{name: "cmtime", server: "cmtime -c 10 -b ADDR", client: "cmtime -c 10 -s ADDR", ends: one},
}
