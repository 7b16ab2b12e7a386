//go:build e2e

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"lameduck/clusters"
	"lameduck/harness"
)

type verbsOn struct {
	cluster clusters.Cluster
	world   *World
}

// deploy makes a deployment of a few pods that stop at once, so that nothing is
// waited for but what is asked for.
func (v verbsOn) deploy(t *testing.T, number int, edit func(*harness.Setup)) (*deployment, *memory) {
	t.Helper()
	trial, rec := testTrial(), &memory{}
	trial.Number = number
	s := &trial.Setup
	s.Workload.Replicas, s.Workload.OnSIGTERM, s.Workload.ResponseTime.SlowShare = 3, harness.SIGTERMExit, 0
	s.Scenario = harness.ScenarioSpec{Name: "baseline"}
	if edit != nil {
		edit(s)
	}
	d, err := v.world.Deploy(stepContext(t), trial, harness.NewClock(), rec)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*deployment), rec
}

// ask sends n requests over new connections, in turn to each address, and
// returns how many answers came from each version.
func (v verbsOn) ask(t *testing.T, n int, addresses []string) map[string]int {
	t.Helper()
	const request = `for i in $(seq "$0"); do for node; do
exec 3<>"/dev/tcp/${node%:*}/${node##*:}" || exit 1
printf 'GET / HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n' >&3
cat <&3
exec 3>&-
done; done`
	args := append([]string{"-c", request, fmt.Sprint(n / len(addresses))}, addresses...)
	out, err := v.cluster.(clusters.ClientHost).ClientCommand(stepContext(t), "bash", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("send requests: %v: %s", err, out)
	}
	versions := make(map[string]int)
	for line := range strings.Lines(string(out)) {
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, harness.VersionHeader) {
			versions[strings.TrimSpace(value)]++
		}
	}
	return versions
}

func (v verbsOn) wantOnly(t *testing.T, d *deployment, version string) {
	t.Helper()
	if got := v.ask(t, 20, d.Target().Nodes); got[version] != 20 || len(got) != 1 {
		t.Errorf("20 requests were answered by %v, want %s only", got, version)
	}
}

// nodePorts are where each node takes requests for the workload: what a new
// connection of the load balancer would get in instance mode.
func (v verbsOn) nodePorts(t *testing.T, d *deployment) []string {
	t.Helper()
	s, err := v.world.client.CoreV1().Services(d.namespace).Get(stepContext(t), d.names.Service, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := v.world.client.CoreV1().Nodes().List(stepContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				all = append(all, fmt.Sprintf("%s:%d", a.Address, s.Spec.Ports[0].NodePort))
			}
		}
	}
	return all
}

// endpoints are the names of all pods in the slices of a Service.
func (v verbsOn) endpoints(t *testing.T, d *deployment, service string) []string {
	t.Helper()
	list, err := v.world.client.DiscoveryV1().EndpointSlices(d.namespace).
		List(stepContext(t), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			names = append(names, e.TargetRef.Name)
		}
	}
	return names
}

// answer is what a GET over a connection of its own came to.
type answer struct {
	status string // "": none
	header map[string]string
}

// get asks from the client's host, without a wish to close the connection.
func (v verbsOn) get(t *testing.T, address, path string) answer {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	const request = `exec 3<>"/dev/tcp/$0/$1" && printf 'GET %s HTTP/1.1\r\nHost: app\r\n\r\n' "$2" >&3 &&
while IFS= read -r line <&3 && [ "$line" != $'\r' ]; do printf '%s\n' "$line"; done`
	out, _ := v.cluster.(clusters.ClientHost).ClientCommand(stepContext(t), "timeout", "2", "bash", "-c", request, host, port, path).Output()
	first, rest, _ := strings.Cut(string(out), "\n")
	a := answer{header: make(map[string]string)}
	if fields := strings.Fields(first); len(fields) > 1 {
		a.status = fields[1]
	}
	for line := range strings.Lines(rest) {
		name, value, _ := strings.Cut(line, ":")
		a.header[strings.ToLower(name)] = strings.TrimSpace(value)
	}
	return a
}

// idleUntilClosed is how long a connection stays open after an answer; a minute
// is more than any test asks for.
func (v verbsOn) idleUntilClosed(t *testing.T, address string) time.Duration {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	const hold = `exec 3<>"/dev/tcp/$0/$1" && printf 'GET / HTTP/1.1\r\nHost: app\r\n\r\n' >&3 && read -r line <&3 &&
case $line in *" 200 "*) exec cat <&3 >/dev/null;; esac; exit 1`
	start := time.Now()
	if err := v.cluster.(clusters.ClientHost).ClientCommand(stepContext(t), "timeout", "60", "bash", "-c", hold, host, port).Run(); err != nil {
		t.Errorf("hold a connection to %s: %v", address, err)
	}
	return time.Since(start)
}

// sharePod sends n requests to the load balancer, and returns how many of the
// answers are of the pod.
func (v verbsOn) sharePod(t *testing.T, d *deployment, n int, pod string) int {
	t.Helper()
	of := 0
	for i := range n {
		nodes := d.Target().Nodes
		if v.get(t, nodes[i%len(nodes)], "/").header[strings.ToLower(harness.PodHeader)] == pod {
			of++
		}
	}
	return of
}

func podAddress(p *corev1.Pod) string { return fmt.Sprintf("%s:%d", p.Status.PodIP, appPort) }

// delete asks a pod to go, as its controllers do.
func (v verbsOn) delete(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := v.world.client.CoreV1().Pods(p.Namespace).Delete(stepContext(t), p.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventually polls until ok, or fails with what was wanted.
func eventually(t *testing.T, want string, ok func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), confirmPoll, 90*time.Second, true, func(context.Context) (bool, error) { return ok(), nil })
	if err != nil {
		t.Errorf("%s: %v", want, err)
	}
}

// change is one line of the load balancer's target log.
type change struct {
	targetState
	Time time.Time `json:"time"`
}

// changes are those of the workload's targets over all nodes of the load balancer.
func (v verbsOn) changes(t *testing.T, d *deployment) []change {
	t.Helper()
	var all []change
	err := d.eachLogLine(stepContext(t), clusters.LogTargets, func(line []byte) error {
		var c change
		err := json.Unmarshal(line, &c)
		if err == nil && c.Node == "" && strings.Contains(c.Group, "/"+d.names.Service+":") {
			all = append(all, c)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// stateOf is the last state of a pod's target.
func (v verbsOn) stateOf(t *testing.T, d *deployment, p *corev1.Pod) string {
	t.Helper()
	state := ""
	for _, c := range v.changes(t, d) {
		if c.Target == podAddress(p) {
			state = c.State
		}
	}
	return state
}

// firstOf is the first event of a kind about an object; false if there is none.
func (m *memory) firstOf(kind harness.EventKind, object string) (harness.Event, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.events, func(e harness.Event) bool { return e.Kind == kind && e.Object == object })
	if i < 0 {
		return harness.Event{}, false
	}
	return m.events[i], true
}

// lifeAfterDeletion is how long a pod's container ran after its deletion was
// asked for, and its exit code.
func (m *memory) lifeAfterDeletion(t *testing.T, pod string) (time.Duration, string) {
	t.Helper()
	asked, ok1 := m.firstOf(harness.EventPodDeletionAsked, pod)
	exited, ok2 := m.firstOf(harness.EventContainerExited, pod)
	if !ok1 || !ok2 {
		t.Errorf("pod %s: deletion recorded %t, exit recorded %t", pod, ok1, ok2)
	}
	return exited.At - asked.At, exited.Detail["exitCode"]
}
