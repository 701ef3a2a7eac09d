package main

// verbsRow returns a row of tests of cverbs that create objects of every kind that the device
// supports.
func verbsRow(name, promise string, tests ...string) scenario {
	s := callersRow(name, promise, tests...)
	s.group = "verbs"
	s.rounds = map[string][2]int{"loop": {1, 3}, "rxe": {1, 1}}
	s.why = map[string]string{}
	return s
}

var verbsGroup = []scenario{
	verbsRow("each kind of object, made, used and closed from many goroutines at once, twice, under its children",
		"one Close succeeds, of a parent in use none; nothing is left", "cverbs:TestKindsAtOnce", "cverbs:TestKindsClose"),
	verbsRow("each kind, one after another, and creations that fail", "nothing is left", "cverbs:TestKindsLeaveNothing"),
	verbsRow("each kind until the device refuses one more", "all can be closed; then one more is made",
		"cverbs:TestKindsMany"),
	verbsRow("each kind with 0 to 11 descriptors left", "it is made, or the error names the limit; nothing is left",
		"cverbs:TestKindsFewDescriptors", "cverbs:TestOpenFileLimit"),
	verbsRow("locked memory", "the error names the limit and the size", "cverbs:TestLockedMemoryLimit").
		exceptOn("loop: locks none"),
	verbsRow("SIGKILL of a process that holds each kind", "the device has nothing of it left; each kind is made again",
		"cverbs:TestKindsKilled"),
	verbsRow("a caller who cancels, wakes and closes while others wait", "each wait ends, with its own error",
		"cverbs:TestEventChannelWaits", "cverbs:TestChannelWake", "cverbs:TestChannelCloseWhileWaiting",
		"cverbs:TestConcurrentClose"),
	verbsRow("a caller who floods and stalls: full queues, and completions that nobody takes",
		"a post is refused and changes nothing; nothing is lost", "cverbs:TestPostFull", "cverbs:TestPostRecvFull",
		"cverbs:TestCMCloseWithPendingEvents"),
	verbsRow("many connections, one after another", "nothing is left", "cverbs:TestManyConnections"),
	verbsRow("a peer that has gone and says nothing", "the request fails after its retries, the next is flushed",
		"cverbs:TestPeerGone").exceptOn("loop: retries for ever"),
	verbsRow("a peer that gives wrong keys", "the request fails, with the reason; the queue pair is in error",
		"cverbs:TestErrorCompletion"),
}
