package udat

// RKey is the region's remote key, also where no remote privilege was asked for: what an attacker
// would guess.
func RKey(l *LMR) uint32 { return l.mr.RKey() }

// Use makes the region one that an object uses, until the function that it gives is called.
func (l *LMR) Use() (unuse func()) {
	if err := l.obj.use("test", HandleLMR); err != nil {
		panic(err)
	}
	return l.obj.unuse
}
