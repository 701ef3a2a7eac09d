package udat

// RKey returns the region's remote key, even if the region has no remote privilege: an attacker
// could guess the key.
func RKey(l *LMR) uint32 { return l.mr.RKey() }

// Use takes a reference to the region, until the returned function is called.
func (l *LMR) Use() (unuse func()) {
	if err := l.obj.use("test", HandleLMR); err != nil {
		panic(err)
	}
	return l.obj.unuse
}
