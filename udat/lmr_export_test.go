package udat

// RKey is the region's remote key, also where no remote privilege was asked for: what an attacker would guess.
func RKey(l *LMR) uint32 { return l.mr.RKey() }
