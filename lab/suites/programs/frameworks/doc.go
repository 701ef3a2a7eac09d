// Package frameworks has the lines that hand rdmanet's Dialer and Listener to other projects. The
// page docs/frameworks.md shows them, and the tests run them.
package frameworks
