//go:build !unix

package engine

func processUsage() usage { return usage{} }
