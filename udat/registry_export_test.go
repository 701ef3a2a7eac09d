package udat

// LimitProviders limits the registry to n names. undo restores the limit.
func LimitProviders(n int) (undo func()) {
	was := maxProviders
	maxProviders = n
	return func() { maxProviders = was }
}
