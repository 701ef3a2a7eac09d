package cverbs_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/godat/godat/cverbs"
)

// Measures by the device's own clock how long a write takes, with the timestamp in its completion.
// If the device has no timestamps, the example creates a queue without them.
func ExampleContext_CreateCQEx() {
	devices, err := cverbs.Devices()
	check(err)
	if len(devices) == 0 {
		log.Fatal("this host has no verbs device")
	}
	ctx, err := cverbs.OpenDevice(devices[0].Name)
	check(err)
	defer ctx.Close()
	device, err := ctx.QueryDevice()
	check(err)
	cq, err := ctx.CreateCQEx(cverbs.CQInit{Depth: 16, Fields: cverbs.WCFieldsStandard | cverbs.WCFieldTimestamp})
	stamps := err == nil
	if errors.Is(err, cverbs.ErrNotSupported) {
		log.Printf("%s has no timestamps: %v", ctx.Name(), err)
		cq, err = ctx.CreateCQEx(cverbs.CQInit{Depth: 16})
	}
	check(err)
	defer cq.Close()
	pd, err := ctx.AllocPD()
	check(err)
	defer pd.Close()
	mr, err := pd.RegMR(make([]byte, 200), cverbs.AccessLocalWrite|cverbs.AccessRemoteWrite)
	check(err)
	defer mr.Close()
	qp := connected(ctx, pd, cq, 0)
	defer qp[0].Close()
	defer qp[1].Close()

	var posted uint64
	if stamps {
		posted, err = ctx.Clock()
		check(err)
	}
	_, err = qp[0].PostSend(
		[]cverbs.SendWR{{ID: 42, Opcode: cverbs.OpRDMAWrite, Flags: cverbs.SendSignaled, RemoteAddr: mr.Addr() + 100,
			RKey: mr.RKey(), NumSGE: 1}},
		[]cverbs.SGE{{Addr: mr.Addr(), Length: 100, LKey: mr.LKey()}})
	check(err)
	wc := make([]cverbs.WCEx, 16)
	n := 0
	for n == 0 {
		n, err = cq.PollEx(wc, 1)
		check(err)
		time.Sleep(time.Millisecond)
	}
	fmt.Println(n, wc[0].ID, wc[0].Status)
	if stamps {
		log.Print("completed after ", device.Elapsed(posted, wc[0].Timestamp))
	}
	// On a host with a device this prints: 1 42 SUCCESS
}
