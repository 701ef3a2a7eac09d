package programs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

func serveNATS() (string, func() error, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		return "", nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(patience) {
		return "", nil, errors.New("the server of nats does not start")
	}
	return strings.TrimPrefix(s.ClientURL(), "nats://"), func() error {
		s.Shutdown()
		s.WaitForShutdown()
		return nil
	}, nil
}

func useNATS(t *testing.T, address string) {
	connect := func() *nats.Conn {
		c, err := nats.Connect("nats://"+address, nats.Timeout(patience))
		must(t, err)
		return c
	}
	a, b := connect(), connect()
	defer a.Close()
	defer b.Close()
	var got atomic.Int64
	all := make(chan struct{})
	const messages = 20_000
	_, err := a.Subscribe("numbers.>", func(m *nats.Msg) {
		if got.Add(1) == messages {
			close(all)
		}
	})
	must(t, err)
	_, err = a.QueueSubscribe("echo", "workers", func(m *nats.Msg) { m.Respond(m.Data) })
	must(t, err)
	must(t, a.FlushTimeout(patience))
	for i := range messages {
		must(t, b.Publish(fmt.Sprintf("numbers.%d", i%10), pattern(i%512, i)))
	}
	must(t, b.FlushTimeout(patience))
	select {
	case <-all:
	case <-time.After(patience):
		t.Errorf("%d messages of %d", got.Load(), messages)
	}
	parallel(t, 8, func(i int) error {
		for k := range 30 {
			body := pattern(sizes[k%len(sizes)], i)
			m, err := b.Request("echo", body, patience)
			if err != nil || !bytes.Equal(m.Data, body) {
				return fmt.Errorf("request of %d bytes: %w", len(body), err)
			}
		}
		return nil
	})
	must(t, a.Drain())
}
