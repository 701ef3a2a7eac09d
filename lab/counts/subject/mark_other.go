//go:build !amd64

package main

func mark() { panic("counting is for amd64") }
