//go:build !linux

package main

import "errors"

func limitDescriptors(int) (func() error, error) { return nil, errors.ErrUnsupported }

func addresses() uint64 { return 0 }

func limitAddresses(uint64) (func() error, error) { return nil, errors.ErrUnsupported }

func lockedMemory(int, func() error) error { return errors.ErrUnsupported }
