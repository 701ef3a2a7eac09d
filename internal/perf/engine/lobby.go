package engine

import (
	"cmp"
	"net"
	"slices"
	"sync"
)

// lobbySize is the default of Lobby.Size.
const lobbySize = 256

// Lobby keeps the connections whose clients have not sent a hello yet, oldest first. If it is full,
// Enter closes the oldest connection, so that silent clients do not keep others out. The methods
// may be called concurrently.
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
