package fabrictest

import "testing"

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	for _, c := range []struct {
		name string
		f    func(t *testing.T, cfg Config)
	}{
		{"Attr", testAttr},
		{"Connect", testConnect},
		{"ConnectBadArguments", testConnectBadArguments},
		{"PrivateData", testPrivateData},
		{"RejectByConsumer", testRejectByConsumer},
		{"RejectOtherwise", testRejectOtherwise},
		{"NobodyListens", testNobodyListens},
		{"Unreachable", testUnreachable},
		{"ManyRequests", testManyRequests},
		{"AddrInUse", testAddrInUse},
		{"Listener", testListener},
		{"RequestAnsweredOnce", testRequestAnsweredOnce},
		{"RequesterGone", testRequesterGone},
		{"ReadDepths", testReadDepths},
		{"QPClaims", testQPClaims},
		{"Disconnect", testDisconnect},
		{"DisconnectBoth", testDisconnectBoth},
		{"DisconnectAttempt", testDisconnectAttempt},
		{"PeerGone", testPeerGone},
		{"CloseInEveryState", testCloseInEveryState},
		{"Messages", testMessages},
		{"EarlyReceives", testEarlyReceives},
		{"Flush", testFlush},
		{"FlushBatches", testFlushBatches},
		{"FlushUnconnected", testFlushUnconnected},
		{"QueueFull", testQueueFull},
		{"NotConnected", testNotConnected},
		{"Write", testWrite},
		{"Read", testRead},
		{"Atomics", testAtomics},
		{"Immediate", testImmediate},
		{"Inline", testInline},
		{"RemoteAccess", testRemoteAccess},
		{"TooLong", testTooLong},
		{"ReceiverNotReady", testReceiverNotReady},
		{"Window", testWindow},
		{"WindowInvalidate", testWindowInvalidate},
		{"SharedReceive", testSharedReceive},
		{"SharedReceiveLimit", testSharedReceiveLimit},
		{"CQWait", testCQWait},
		{"CQSolicited", testCQSolicited},
		{"CQResize", testCQResize},
		{"InUse", testInUse},
		{"Closed", testClosed},
		{"BadSizes", testBadSizes},
		{"DeviceClose", testDeviceClose},
		{"Concurrent", testConcurrent},
		{"ConcurrentClose", testConcurrentClose},
		{"NoAllocation", testNoAllocation},
		{"Leaks", testLeaks},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, cfg) })
	}
}
