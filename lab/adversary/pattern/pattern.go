// Package pattern says what bytes the adversary and its target put where, so that each sees a byte
// that is where it must not be.
package pattern

// Secret fills all memory of the target that it has not posted to be sent, and has not granted to
// be read. Nothing that is sent has this byte in its payload.
const Secret = 0xA5

// Begin is how long the first part of a large message is, which says what follows: see Put.
const Begin = 8

const marker = 0xC0

// At returns byte i of the message with the number n that the target posts: 1 to 127.
func At(n uint64, i int) byte { return 1 + byte((n*13+uint64(i)*7)%127) }

// Put fills b with the message n. Unless it is short, it begins with its number.
func Put(b []byte, n uint64) {
	for i := range b {
		b[i] = At(n, i)
	}
	if len(b) >= Begin {
		b[0] = marker
		for i := 1; i < Begin; i++ {
			b[i] = byte(n >> (7 * (i - 1)) & 127)
		}
	}
}

// Number returns the number of a message that begins with b, or false if b does not say.
func Number(b []byte) (n uint64, ok bool) {
	if len(b) < Begin || b[0] != marker {
		return 0, false
	}
	for i := Begin - 1; i > 0; i-- {
		n = n<<7 | uint64(b[i])
	}
	return n, true
}

// Wrong returns the index of the first byte of b that is not the message n from the offset off on,
// or -1.
func Wrong(b []byte, n uint64, off int) int {
	for i, c := range b {
		if off+i < Begin {
			continue
		}
		if c != At(n, off+i) {
			return i
		}
	}
	return -1
}

// What the adversary sends: 0xE0 to 0xEF.
func Foreign(i int) byte { return 0xE0 | byte(i&15) }

// Contents of the regions that the peer may read, before it writes to them.
const (
	Room     = 0x11
	ReadOnly = 0x22
)
