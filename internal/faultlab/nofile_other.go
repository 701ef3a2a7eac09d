//go:build !linux

package main

import "errors"

func limitDescriptors(int) error { return errors.ErrUnsupported }

func lockedMemory(int, func() error) error { return errors.ErrUnsupported }
