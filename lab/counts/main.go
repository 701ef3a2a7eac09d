// Command counts counts what one operation takes on the loop device: instructions, system calls and
// allocations. It counts operations in C, cverbs, udat and rdmanet.
//
//	go -C lab run ./counts             print the table
//	go -C lab run ./counts -write      and write it to lab/counts/counts.tsv
//	go -C lab run ./counts "udat post" print the rows that begin so
//
// With the same compiler the figures are the same on every machine, busy or not. The test of this
// package fails if a figure exceeds the one in counts.tsv by more than 3 percent. An accept, and a
// round trip over a socket, may vary more.
package main

import (
	"flag"
	"log"
	"os"
	"strings"
)

func main() {
	write := flag.Bool("write", false, "write counts.tsv")
	flag.Parse()
	if *write && flag.NArg() > 0 {
		log.Fatal("counts: -write writes all rows")
	}
	rows, err := measure(strings.Join(flag.Args(), " "))
	if err != nil {
		log.Fatal(err)
	}
	os.Stdout.WriteString(table(rows))
	if *write {
		if err := os.WriteFile(file(), []byte(table(rows)), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
