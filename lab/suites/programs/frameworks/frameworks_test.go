package frameworks

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
	"github.com/smallnest/rpcx/client"
	rpcxlog "github.com/smallnest/rpcx/log"
	rpcxserver "github.com/smallnest/rpcx/server"
	"github.com/tidwall/redcon"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/godat/godat/rdmanet"
)

// dialer and lc are those of the page.
var (
	dialer = &rdmanet.Dialer{Device: device()}
	lc     = &rdmanet.ListenConfig{Device: device()}
)

func device() string {
	if d := os.Getenv("GODAT_TEST_DEVICE"); d != "" {
		return d
	}
	return "tcp:127.0.0.1"
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// listen returns a listener on a free port. The test counts the connections that it accepts.
func listen(t *testing.T) *counted {
	t.Helper()
	l, err := lc.Listen(t.Context(), "rdma", ":0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return &counted{Listener: l, accepted: make(chan struct{}, 1000)}
}

type counted struct {
	net.Listener
	accepted chan struct{}
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- struct{}{}
	}
	return c, err
}

// used fails the test if no connection came over rdmanet.
func (l *counted) used(t *testing.T) {
	t.Helper()
	if len(l.accepted) == 0 {
		t.Error("nothing connected over rdmanet")
	}
}

func (l *counted) addr() string { return l.Addr().String() }

func TestHTTP(t *testing.T) {
	l := listen(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	go http.Serve(l, handler)
	c := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	defer c.CloseIdleConnections()
	for range 3 {
		a, err := c.Get("http://" + l.addr())
		must(t, err)
		text, err := io.ReadAll(a.Body)
		must(t, err)
		a.Body.Close()
		if string(text) != "hello" {
			t.Errorf("%q", text)
		}
	}
	l.used(t)
}

func TestConnect(t *testing.T) {
	type message = wrapperspb.StringValue
	l := listen(t)
	mux := http.NewServeMux()
	mux.Handle("/echo.Echo/Say", connect.NewUnaryHandler("/echo.Echo/Say",
		func(_ context.Context, q *connect.Request[message]) (*connect.Response[message], error) {
			return connect.NewResponse(q.Msg), nil
		}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: mux, Protocols: protocols}
	go s.Serve(l)
	c := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, Protocols: protocols}}
	defer s.Close()
	defer c.CloseIdleConnections()
	say := connect.NewClient[message, message](c, "http://"+l.addr()+"/echo.Echo/Say", connect.WithGRPC())
	for range 3 {
		a, err := say.CallUnary(t.Context(), connect.NewRequest(wrapperspb.String("hello")))
		must(t, err)
		if a.Msg.Value != "hello" {
			t.Errorf("%q", a.Msg.Value)
		}
	}
	l.used(t)
}

// kv is a store that speaks etcd's protocol.
type kv struct {
	pb.UnimplementedKVServer
	values map[string][]byte
}

func (s *kv) Put(_ context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	s.values[string(r.Key)] = r.Value
	return &pb.PutResponse{Header: &pb.ResponseHeader{}}, nil
}

func (s *kv) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}, Count: 1,
		Kvs: []*mvccpb.KeyValue{{Key: r.Key, Value: s.values[string(r.Key)]}}}, nil
}

func TestGRPCAndEtcd(t *testing.T) {
	l := listen(t)
	s := grpc.NewServer()
	pb.RegisterKVServer(s, &kv{values: map[string][]byte{}})
	go s.Serve(l)
	defer s.Stop()
	overRDMA := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, "rdma", address)
	})
	conn, err := grpc.NewClient("passthrough:///"+l.addr(), overRDMA,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer conn.Close()
	_, err = pb.NewKVClient(conn).Put(t.Context(), &pb.PutRequest{Key: []byte("key"), Value: []byte("value")})
	must(t, err)
	l.used(t)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{l.addr()}, DialOptions: []grpc.DialOption{overRDMA}})
	must(t, err)
	defer etcd.Close()
	a, err := etcd.Get(t.Context(), "key")
	must(t, err)
	if a.Count != 1 || string(a.Kvs[0].Value) != "value" {
		t.Errorf("%v", a)
	}
	if len(l.accepted) < 2 {
		t.Error("etcd's client has not connected over rdmanet")
	}
}

// natsDialer is a dialer for nats.SetCustomDialer.
type natsDialer struct{}

func (natsDialer) Dial(network, address string) (net.Conn, error) {
	return dialer.DialContext(context.Background(), network, address)
}

// relay serves a program that cannot be given a listener: each connection of l gets one of dial's.
func relay(l net.Listener, dial func() (net.Conn, error)) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			s, err := dial()
			if err != nil {
				return
			}
			defer s.Close()
			go func() { io.Copy(s, c); s.Close() }()
			io.Copy(c, s)
		}()
	}
}

func TestNATS(t *testing.T) {
	s, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true})
	must(t, err)
	go s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	l := listen(t)
	go relay(l, s.InProcessConn)
	nc, err := nats.Connect("nats://"+l.addr(), nats.SetCustomDialer(natsDialer{}))
	must(t, err)
	defer nc.Close()
	_, err = nc.Subscribe("echo", func(m *nats.Msg) { m.Respond(m.Data) })
	must(t, err)
	for range 3 {
		m, err := nc.Request("echo", []byte("hello"), time.Minute)
		must(t, err)
		if string(m.Data) != "hello" {
			t.Errorf("%q", m.Data)
		}
	}
	l.used(t)
}

func TestRedis(t *testing.T) {
	l := listen(t)
	s := redcon.NewServer("", func(c redcon.Conn, cmd redcon.Command) {
		switch strings.ToLower(string(cmd.Args[0])) {
		case "ping":
			c.WriteString("PONG")
		default:
			c.WriteError("ERR unknown command")
		}
	}, nil, nil)
	go s.Serve(l)
	defer s.Close()
	c := redis.NewClient(&redis.Options{Addr: l.addr(), Protocol: 2, Dialer: dialer.DialContext})
	defer c.Close()
	for range 3 {
		answer, err := c.Ping(t.Context()).Result()
		must(t, err)
		if answer != "PONG" {
			t.Errorf("%q", answer)
		}
	}
	l.used(t)
}

// Echo is a service of rpcx.
type Echo struct{}

func (Echo) Say(_ context.Context, in *string, out *string) error {
	*out = *in
	return nil
}

func TestRPCX(t *testing.T) {
	rpcxlog.SetDummyLogger()
	l := listen(t)
	client.ConnFactories["rdma"] = func(_ *client.Client, network, address string) (net.Conn, error) {
		return dialer.DialContext(context.Background(), network, address)
	}
	rpcxserver.RegisterMakeListener("rdma", func(_ *rpcxserver.Server, address string) (net.Listener, error) {
		return lc.ListenNet(context.Background(), "rdma", address)
	})
	s := rpcxserver.NewServer()
	must(t, s.RegisterName("Echo", Echo{}, ""))
	go s.ServeListener("rdma", l)
	defer s.Close()
	d, err := client.NewPeer2PeerDiscovery("rdma@"+l.addr(), "")
	must(t, err)
	c := client.NewXClient("Echo", client.Failfast, client.RandomSelect, d, client.DefaultOption)
	defer c.Close()
	in := "hello"
	for range 3 {
		var out string
		must(t, c.Call(t.Context(), "Say", &in, &out))
		if out != in {
			t.Errorf("%q", out)
		}
	}
	l.used(t)

	free := listen(t) // a server that makes its own listener, on an address that was free a moment ago
	address := free.addr()
	must(t, free.Close())
	named := rpcxserver.NewServer()
	must(t, named.RegisterName("Echo", Echo{}, ""))
	served := make(chan error, 1)
	go func() { served <- named.Serve("rdma", address) }()
	for { // until it listens
		conn, err := dialer.DialContext(t.Context(), "rdma", address)
		if err == nil {
			conn.Close()
			break
		}
		select {
		case err := <-served:
			t.Fatal(err)
		default:
		}
	}
	if d, err = client.NewPeer2PeerDiscovery("rdma@"+address, ""); err != nil {
		t.Fatal(err)
	}
	other := client.NewXClient("Echo", client.Failfast, client.RandomSelect, d, client.DefaultOption)
	defer other.Close()
	var out string
	must(t, other.Call(t.Context(), "Say", &in, &out))
	must(t, named.Close())
	<-served
}
