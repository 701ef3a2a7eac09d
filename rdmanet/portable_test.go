//go:build !linux || portablesocket

package rdmanet_test

// portable says whether each connection of tcp has two goroutines, as on systems without epoll.
const portable = true
