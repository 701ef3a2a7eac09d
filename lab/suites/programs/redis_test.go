package programs

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tidwall/redcon"
)

func serveRedis() (string, func() error, error) {
	l, err := listen()
	if err != nil {
		return "", nil, err
	}
	var mu sync.RWMutex
	table := map[string][]byte{}
	var ps redcon.PubSub
	s := redcon.NewServer("", func(c redcon.Conn, cmd redcon.Command) {
		switch strings.ToLower(string(cmd.Args[0])) {
		case "ping":
			c.WriteString("PONG")
		case "set":
			mu.Lock()
			table[string(cmd.Args[1])] = bytes.Clone(cmd.Args[2])
			mu.Unlock()
			c.WriteString("OK")
		case "get":
			mu.RLock()
			v, ok := table[string(cmd.Args[1])]
			mu.RUnlock()
			if !ok {
				c.WriteNull()
			} else {
				c.WriteBulk(v)
			}
		case "publish":
			c.WriteInt(ps.Publish(string(cmd.Args[1]), string(cmd.Args[2])))
		case "subscribe":
			ps.Subscribe(c, string(cmd.Args[1]))
		default:
			c.WriteError("ERR unknown command")
		}
	}, nil, nil)
	go s.Serve(l)
	return l.Addr().String(), s.Close, nil
}

func useRedis(t *testing.T, address string) {
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: address, Protocol: 2, PoolSize: 8})
	sub := c.Subscribe(ctx, "news")
	_, err := sub.Receive(ctx)
	must(t, err)
	parallel(t, 16, func(i int) error {
		for k := range 40 {
			key, value := fmt.Sprintf("%d.%d", i, k%10), pattern(sizes[k%len(sizes)], i)
			if err := c.Set(ctx, key, value, 0).Err(); err != nil {
				return err
			}
			if got, err := c.Get(ctx, key).Bytes(); err != nil || !bytes.Equal(got, value) {
				return fmt.Errorf("%d bytes: %d come back, %v", len(value), len(got), err)
			}
		}
		return nil
	})
	commands, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 2000 {
			p.Get(ctx, "0.1")
		}
		return nil
	})
	if err != nil || len(commands) != 2000 {
		t.Errorf("a pipeline: %d commands, %v", len(commands), err)
	}
	if err := c.Get(ctx, "missing").Err(); err != redis.Nil {
		t.Errorf("a key that is not there: %v", err)
	}
	must(t, c.Publish(ctx, "news", "hello").Err())
	select {
	case m := <-sub.Channel():
		if m.Payload != "hello" {
			t.Errorf("news: %q", m.Payload)
		}
	case <-time.After(patience):
		t.Error("no news")
	}
	must(t, sub.Close())
	must(t, c.Close())
}
