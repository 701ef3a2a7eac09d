package main

// These imports keep the packages under test in go.mod, with everything that their tests need.
import (
	_ "connectrpc.com/connect"
	_ "github.com/coder/websocket"
	_ "github.com/google/go-cmp/cmp" // of the tests of connect
	_ "github.com/gorilla/websocket"
	_ "github.com/hashicorp/raft"
	_ "github.com/hashicorp/yamux"
	_ "github.com/soheilhy/cmux"
	_ "github.com/tidwall/redcon"
	_ "github.com/valyala/fasthttp"
	_ "github.com/xtaci/smux"
	_ "golang.org/x/crypto/ssh"
	_ "golang.org/x/net/nettest"
	_ "golang.org/x/net/netutil"
	_ "golang.org/x/net/websocket"
	_ "google.golang.org/grpc"
	_ "google.golang.org/grpc/interop"
)
