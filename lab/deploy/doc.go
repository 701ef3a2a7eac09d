// Package deploy checks the manifests of deploy/kubernetes. It is a module of its own, for the
// types of Kubernetes.
package deploy
