package main

// suite describes the tests of a package of another project.
type suite struct {
	pkg  string // import path of the package, which is also the suite's name
	run  string // -test.run: matches the tests that use connections; empty: all tests
	skip string // -test.skip; a comment gives the reason
	pipe bool   // also replace net.Pipe, over TCP too, because the tests have few other connections
	// edits replace text in the package's files where the tests insist on the types of TCP.
	edits []edit
}

type edit struct{ file, old, new string }

// halfCloser is an interface with those methods of *net.TCPConn that most tests of package net
// need.
const halfCloser = "interface{ net.Conn; CloseWrite() error }"

// suites lists the suites to run, roughly the short ones first. go.mod contains their versions.
var suites = []suite{
	{pkg: "net/rpc", edits: []edit{{"server_test.go", "*net.TCPConn", halfCloser}}},
	{pkg: "net/smtp"},
	{pkg: "net/http/httptest"},
	{pkg: "net/http/httputil", edits: []edit{
		{"reverseproxy_test.go", "*net.TCPConn", halfCloser},
		{"reverseproxy_test.go", `cli, err := net.DialTCP("tcp", nil, addr)`,
			`conn, err := net.Dial("tcp", addr.String()); cli, _ := conn.(` + halfCloser + `)`},
		{"reverseproxy_test.go", `if err := conn.CloseRead(); err`, "c, ok := conn.(interface{ CloseRead() error })\n" +
			"\t\tif !ok {\n\t\t\tt.Fatal(\"no CloseRead\")\n\t\t}\n\t\tif err := c.CloseRead(); err"},
	}},
	{pkg: "net/http", edits: []edit{
		{"serve_test.go", "*net.TCPConn", halfCloser},
		{"transport_test.go", "type testMockTCPConn struct {\n\t*net.TCPConn", "type readerFrom interface {\n\tnet.Conn\n" +
			"\tio.ReaderFrom\n}\n\ntype testMockTCPConn struct {\n\treaderFrom"},
		{"transport_test.go", "c.TCPConn.ReadFrom", "c.readerFrom.ReadFrom"},
		{"transport_test.go", "conn.(*net.TCPConn)", "conn.(readerFrom)"},
		{"transport_test.go", "tConn.TCPConn = ", "tConn.readerFrom = "},
	}},
	{pkg: "crypto/tls"},
	{pkg: "net", run: "^Test(ConnAndListener|AcceptTimeout.*|ReadTimeout.*|WriteTimeout.*|VariousDeadlines.*|" +
		"ReadWrite.*|ConcurrentSetDeadline|CloseRead|CloseWrite|ConnClose|ListenerClose|ZeroByteRead|" +
		"CloseUnblocksRead|NotTemporaryRead|CancelAfterDial|DialTimeout|DialWithNonZeroDeadline|TCPServer|Buffers_.*|" +
		"ClosingListener|TCPListenAfterClose|TCPConcurrentAccept|TCPStress|TCPBig|TCPReadWriteAllocs|" +
		"CopyPipeIntoTCP)$", edits: []edit{
		{"net_test.go", "*TCPConn", "interface{ Conn; CloseRead() error; CloseWrite() error; SetLinger(int) error }"},
		{"writev_test.go", "*TCPConn", "interface{ Conn; CloseRead() error; CloseWrite() error; SetLinger(int) error }"},
		{"write_unix_test.go", "withTCPConnPair(t, client, server)", "_, _ = client, server"},
		{"timeout_test.go", "perr := parseDialError(err); perr", "perr := error(nil); perr"}, // net's error types
		{"timeout_test.go", "*TCPListener", "interface{ Listener; SetDeadline(time.Time) error }"},
	}},
	{pkg: "golang.org/x/net/nettest"},
	{pkg: "golang.org/x/net/netutil"},
	{pkg: "golang.org/x/net/websocket"},
	{pkg: "github.com/gorilla/websocket", edits: []edit{
		{"client_server_test.go", `net.DialTCP("tcp", nil, &net.TCPAddr{IP: ip, Port: int(port)})`,
			`net.Dial("tcp", (&net.TCPAddr{IP: ip, Port: int(port)}).String())`},
	}},
	{pkg: "github.com/coder/websocket", pipe: true, skip: "^TestMask"}, // TestMask is long and uses no connection
	{pkg: "github.com/hashicorp/yamux", edits: []edit{
		{"session_test.go", `net.ListenTCP("tcp", nil)`, `net.Listen("tcp", "localhost:0")`},
	}},
	{pkg: "github.com/xtaci/smux", skip: "^Test8GBTransfer"}, // takes minutes
	{pkg: "github.com/tidwall/redcon"},
	{pkg: "golang.org/x/crypto/ssh"},
	{pkg: "github.com/hashicorp/raft", run: "Transport", edits: []edit{
		{"tcp_transport.go", "listener  *net.TCPListener", "listener  net.Listener"},
		{"tcp_transport.go", "list.(*net.TCPListener)", "list"},
	}},
	{pkg: "google.golang.org/grpc/internal/transport"},
	{pkg: "google.golang.org/grpc"},
	{pkg: "github.com/valyala/fasthttp", edits: []edit{
		{"client_test.go", "conn.(*net.TCPConn)", "conn.(interface{ SetLinger(int) error })"},
		{"stream_tcp_acceptance_test.go", "[]*net.TCPConn{", "[]net.Conn{"},
		{"stream_tcp_acceptance_test.go", "*net.TCPConn", "interface{ net.Conn; SetLinger(int) error }"},
		{"stream_tcp_acceptance_test.go", `net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})`,
			`net.Listen("tcp4", "127.0.0.1:0")`},
		{"stream_tcp_acceptance_test.go", "listener.SetDeadline",
			"listener.(interface{ SetDeadline(time.Time) error }).SetDeadline"},
		{"stream_tcp_acceptance_test.go", "listener.AcceptTCP()", "listener.Accept()"},
	}},
	{pkg: "connectrpc.com/connect"},
	{pkg: "github.com/soheilhy/cmux"},
	{pkg: "github.com/godat/godat/lab/suites/programs"},
}
