//go:build !portablesocket

package rdmanet_test

const portable = false
