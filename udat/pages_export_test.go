//go:build unix && !openbsd

package udat

// AddressLimit gives tests the text about the limit of address space.
var AddressLimit = addressLimit
