package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const manifests = "../../deploy/kubernetes"

// kinds lists the kinds of objects that the manifests may contain.
var kinds = map[string]func() any{
	"v1 Namespace":       func() any { return new(core.Namespace) },
	"v1 ServiceAccount":  func() any { return new(core.ServiceAccount) },
	"v1 Service":         func() any { return new(core.Service) },
	"apps/v1 DaemonSet":  func() any { return new(apps.DaemonSet) },
	"batch/v1 Job":       func() any { return new(batch.Job) },
	"batch/v1 CronJob":   func() any { return new(batch.CronJob) },
	"apps/v1 Deployment": func() any { return new(apps.Deployment) },
}

// read decodes a manifest. A field that its type lacks, or that is there twice, is an error.
func read(text []byte) (all []any, err error) {
	for part := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal(part, &head); err != nil {
			return nil, err
		}
		make := kinds[head.APIVersion+" "+head.Kind]
		if make == nil {
			return nil, fmt.Errorf("%s %s is not known here", head.APIVersion, head.Kind)
		}
		one := make()
		text, err := yaml.YAMLToJSONStrict(part)
		if err != nil {
			return nil, err
		}
		strict, err := json.UnmarshalStrict(text, one) // as the API server: upper and lower case differ
		if err := errors.Join(append(strict, err)...); err != nil {
			return nil, fmt.Errorf("%s: %w", head.Kind, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func objects(t *testing.T) (all []any) {
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("the manifests are %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := read(text)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, objects...)
	}
	return all
}

// read refuses a field that Kubernetes does not know, and a value of a wrong type.
func TestStrict(t *testing.T) {
	const good = "apiVersion: v1\nkind: Service\nspec:\n  clusterIP: None\n"
	if _, err := read([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{good + "  clusterIp: None\n", good + "  ports: 5\n", good + "  clusterIP: None\n",
		strings.Replace(good, "Service", "Servise", 1)} {
		if _, err := read([]byte(bad)); err == nil {
			t.Errorf("this is taken:\n%s", bad)
		}
	}
}

// pods returns the pod templates, by the names of the objects that contain them.
func pods(t *testing.T) map[string]core.PodTemplateSpec {
	all := map[string]core.PodTemplateSpec{}
	for _, one := range objects(t) {
		switch one := one.(type) {
		case *apps.DaemonSet:
			all[one.Name] = one.Spec.Template
			if !selects(one.Spec.Selector.MatchLabels, one.Spec.Template.Labels) {
				t.Errorf("DaemonSet %s does not select its own pods", one.Name)
			}
		case *batch.Job:
			all[one.GenerateName] = one.Spec.Template
			if one.Spec.ActiveDeadlineSeconds == nil || one.Spec.Template.Spec.RestartPolicy != core.RestartPolicyNever {
				t.Errorf("Job %s has no limit of time, or starts again", one.GenerateName)
			}
		}
	}
	if len(all) != 2 {
		t.Fatalf("%d templates of pods", len(all))
	}
	return all
}

func selects(selector, of map[string]string) bool {
	return len(selector) > 0 && labels.SelectorFromSet(selector).Matches(labels.Set(of))
}

// The objects name only volumes, ports, pods and service accounts that exist.
func TestNames(t *testing.T) {
	accounts, namespaces := map[string]bool{}, map[string]bool{}
	var service *core.Service
	for _, one := range objects(t) {
		switch one := one.(type) {
		case *core.ServiceAccount:
			accounts[one.Name] = true
		case *core.Namespace:
			namespaces[one.Name] = true
		case *core.Service:
			service = one
		}
	}
	served := 0
	for name, pod := range pods(t) {
		if !accounts[pod.Spec.ServiceAccountName] {
			t.Errorf("%s: there is no service account %q", name, pod.Spec.ServiceAccountName)
		}
		volumes := map[string]bool{}
		for _, v := range pod.Spec.Volumes {
			volumes[v.Name] = true
		}
		ports := map[string]int32{}
		for _, c := range pod.Spec.Containers {
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("%s: there is no volume %q", name, m.Name)
				}
			}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			if p := c.ReadinessProbe; p != nil && ports[p.HTTPGet.Port.String()] == 0 {
				t.Errorf("%s: there is no port %q", name, p.HTTPGet.Port.String())
			}
			if s := c.SecurityContext; s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
				len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" {
				t.Errorf("%s: it has more rights than it needs: %v", name, s)
			}
		}
		if selects(service.Spec.Selector, pod.Labels) {
			served++
			if ports["control"] != service.Spec.Ports[0].Port {
				t.Errorf("the service's port is %d, the server's %d", service.Spec.Ports[0].Port, ports["control"])
			}
		}
		script := strings.Join(pod.Spec.Containers[0].Command, " ")
		if strings.Contains(script, "getent") && !strings.Contains(script, "ahosts "+service.Name+" ") {
			t.Errorf("%s looks for another service than %s", name, service.Name)
		}
	}
	if served != 1 {
		t.Errorf("the service selects %d kinds of pods", served)
	}
	for _, one := range objects(t) {
		if o, ok := one.(interface{ GetNamespace() string }); ok && o.GetNamespace() != "" && !namespaces[o.GetNamespace()] {
			t.Errorf("there is no namespace %q", o.GetNamespace())
		}
	}
}

// datperf has the flags that the manifests use.
func TestFlags(t *testing.T) {
	program := filepath.Join(t.TempDir(), "datperf")
	build := exec.Command("go", "build", "-o", program, "./cmd/datperf")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for command, pod := range map[string]string{"server": "datperf", "mesh": "datperf-mesh-"} {
		c := pods(t)[pod].Spec.Containers[0]
		args := append([]string{command}, c.Args...)
		if len(c.Command) == 0 {
			args = c.Args
		} else {
			_, flags, found := strings.Cut(c.Command[2], "datperf mesh ")
			if !found {
				t.Fatalf("no datperf mesh in %q", c.Command[2])
			}
			args = append(args, strings.Fields(strings.ReplaceAll(flags, `"$@"`, ""))...)
		}
		out, err := exec.Command(program, append(args, "--help")...).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("datperf "+command)) {
			t.Errorf("datperf %v: %v\n%s", args, err, out)
		}
		out, _ = exec.Command(program, append(args, "--no-such-flag")...).CombinedOutput()
		if !bytes.Contains(out, []byte("no-such-flag")) {
			t.Errorf("an unknown flag is not found: %s", out)
		}
	}
}
