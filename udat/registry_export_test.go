package udat

// LimitProviders lets the registry hold n names at the most, and gives the way back.
func LimitProviders(n int) (undo func()) {
	was := maxProviders
	maxProviders = n
	return func() { maxProviders = was }
}
