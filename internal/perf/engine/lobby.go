package engine

import (
	"cmp"
	"net"
	"slices"
	"sync"
)

// lobbySize is the number of connections without a hello that a server keeps.
const lobbySize = 256

// Lobby holds connections from which nothing useful has come yet, oldest first. When it is full,
// the oldest one is closed, so that silent connections keep nobody out. Its methods may be called
// concurrently. The zero value holds 256 connections.
type Lobby struct {
	Size int // connections, if it is not 0

	mu    sync.Mutex
	conns []net.Conn
}

// Enter adds a connection.
func (l *Lobby) Enter(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) == cmp.Or(l.Size, lobbySize) {
		l.conns[0].Close()
		l.conns = slices.Delete(l.conns, 0, 1)
	}
	l.conns = append(l.conns, conn)
}

// Leave removes a connection, if it is still there.
func (l *Lobby) Leave(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.conns, conn); i >= 0 {
		l.conns = slices.Delete(l.conns, i, i+1)
	}
}

func (l *Lobby) closeAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		conn.Close()
	}
}
