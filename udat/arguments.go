package udat

import "strconv"

// A subtype SubArgN of an error counts the arguments of the C call, whose first is the handle, as DAT's return codes do: that is what
// programs compare. The text of the error counts those of the Go call, without the receiver: that is what
// people read. In most calls the two differ by the receiver alone; goArguments has the others.

// goArguments has, for the calls whose arguments stand elsewhere in Go, the place of each argument of the C call, in its order: from 1, or 0
// for the receiver.
var goArguments = map[string][]int{
	"ia_open":                      {1, 2},
	"registry_add_provider":        {1, 2},
	"registry_remove_provider":     {1},
	"strerror":                     {1},
	"ia_query":                     {0, 0, 1, 1, 2, 2},
	"evd_create":                   {0, 1, 3, 2},
	"ep_connect":                   {0, 1, 2, 3, 4, 4, 5, 6},
	"ep_dup_connect":               {0, 1, 2, 3, 3, 4},
	"ep_post_send":                 {0, 1, 1, 2, 3},
	"ep_post_send_immediate":       {0, 1, 1, 2, 4},
	"ep_post_send_with_invalidate": {0, 1, 1, 2, 4},
	"ep_post_recv":                 {0, 1, 1, 2, 3},
	"srq_post_recv":                {0, 1, 1, 2},
	"ep_post_rdma_read":            {0, 1, 1, 2, 3, 4},
	"ep_post_rdma_write":           {0, 1, 1, 2, 3, 4},
	"ep_post_rdma_read_to_rmr":     {0, 2, 3, 4, 5},
	"ib_post_rdma_write_immed":     {0, 1, 1, 2, 3, 5},
	"ib_post_fetch_and_add":        {0, 2, 2, 4, 4, 5},
	"ib_post_cmp_and_swap":         {0, 3, 3, 5, 5, 6},
	"lmr_create":                   {0, 0, 2, 2, 1, 3},
	"lmr_create_shared":            {0, 0, 2, 2, 1, 4},
	"psp_create_any":               {0, 0, 1, 2},
	"cr_accept":                    {0, 1, 2, 2},
}

// goArgument is the text for a wrong argument of a call, which counts as the Go call does.
func goArgument(op string, s Subtype) string {
	n := int(s - SubArg1)
	if places, ok := goArguments[op]; ok && n < len(places) {
		n = places[n]
	}
	if n == 0 {
		return "receiver"
	}
	return "argument " + strconv.Itoa(n)
}

// attrArgument is where the C call that makes or changes an endpoint has its attributes.
func attrArgument(op string) Subtype {
	switch op {
	case "ep_create_with_srq":
		return SubArg7
	case "ep_modify":
		return SubArg3
	}
	return SubArg6
}
