// Command clash calls libibverbs and librdmacm itself, beside cverbs. TestClash builds it as a
// program and as a shared library, and gives the library to the program, which then has two copies
// of cverbs.
package main

/*
#cgo LDFLAGS: -libverbs -lrdmacm -ldl
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

static int own_devices(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct rdma_event_channel *ch = rdma_create_event_channel();

	if (list)
		ibv_free_device_list(list);
	if (ch)
		rdma_destroy_event_channel(ch);
	return n;
}

static int devices_of(const char *file)
{
	void *library = dlopen(file, RTLD_NOW);
	int (*devices)(void) = library ? (int (*)(void))dlsym(library, "CountDevices") : NULL;

	return devices ? devices() : -2;
}
*/
import "C"

import (
	"fmt"
	"os"

	"github.com/godat/godat/cverbs"
)

//export CountDevices
func CountDevices() C.int {
	all, err := cverbs.Devices()
	if err != nil {
		return -3
	}
	return C.int(len(all))
}

func main() {
	for _, arg := range os.Args[1:] {
		switch arg {
		case "own":
			fmt.Println(C.own_devices())
		case "cverbs":
			fmt.Println(CountDevices())
		default:
			fmt.Println(C.devices_of(C.CString(arg)))
		}
	}
}
