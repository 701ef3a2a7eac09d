package engine

import (
	"cmp"
	"net"
	"slices"
	"sync"
)

// lobbySize is the largest number of connections without a hello that a server keeps.
const lobbySize = 256

// Lobby is a list of connections whose peers have not yet sent anything useful, oldest first. If it
// is full, Enter closes the oldest connection, so that silent peers do not keep others out. The
// zero value has room for 256 connections. The methods may be called concurrently.
type Lobby struct {
	Size int // largest number of connections; 0: 256

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

// Leave removes a connection, if it is in the lobby.
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
