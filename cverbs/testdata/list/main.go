// Command list prints the names of the RDMA devices, or why they cannot be listed.
package main

import (
	"fmt"

	"github.com/godat/godat/cverbs"
)

func main() {
	all, err := cverbs.Devices()
	for _, d := range all {
		fmt.Println(d.Name)
	}
	if err != nil {
		fmt.Println(err)
	}
}
