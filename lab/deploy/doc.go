// Package deploy checks the manifests of deploy/kubernetes. It is in its own module, because it
// needs the types of Kubernetes.
package deploy
