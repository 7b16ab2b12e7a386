//go:build e2e

package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"lameduck/clusters"
	"lameduck/clusters/embedded/network"
)

// powers is a cluster whose powers are tested.
type powers struct {
	*Cluster
	provider *Provider
	client   kubernetes.Interface
}

const nodePort, latePort, soonerPort, laterPort = 30080, 30090, 30091, 30092

// eventually waits for a condition.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := poll(ctx, check); err != nil {
		t.Fatal(err)
	}
}

// onePodPerNode deploys the application with one pod on each node.
func (c powers) onePodPerNode(t *testing.T, image string) {
	t.Helper()
	labels := map[string]string{"app": "app"}
	no, grace := false, int64(1)
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			DNSPolicy: corev1.DNSDefault, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "app", Image: image, ImagePullPolicy: corev1.PullNever,
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)},
				}},
			}},
		}},
	}}
	if _, err := c.client.AppsV1().DaemonSets("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.service(t, "app", nodePort)
}

func (c powers) service(t *testing.T, name string, port int32) {
	t.Helper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "app"},
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		Ports:                 []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080), NodePort: port}},
	}}
	if _, err := c.client.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// broken breaks something and returns how to mend it, which happens at the
// latest when the test ends.
func (c powers) broken(t *testing.T, b clusters.Breakage) (mend func()) {
	t.Helper()
	undo, err := c.Break(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	mend = func() {
		if err := undo(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(mend)
	return mend
}

// podObject is the pod on a node that is not being deleted.
func (c powers) podObject(t *testing.T, n int) corev1.Pod {
	t.Helper()
	pods, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName(n)})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && pod.Status.PodIP != "" {
			return pod
		}
	}
	t.Fatalf("no pod on n%d", n)
	return corev1.Pod{}
}

func (c powers) pod(t *testing.T, n int) netip.Addr {
	t.Helper()
	return netip.MustParseAddr(c.podObject(t, n).Status.PodIP)
}

// deletePod deletes the pod on a node and waits until it is gone.
func (c powers) deletePod(t *testing.T, n int) {
	t.Helper()
	pod := c.podObject(t, n)
	if err := c.client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		if _, err := c.client.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{}); err == nil {
			return errors.New("the pod is still there")
		}
		return nil
	})
}

// dial connects from the host client.
func (c powers) dial(proto, address string, limit time.Duration) (conn net.Conn, err error) {
	err = network.Inside(c.NodeNetNS(hostClient), func() (err error) {
		conn, err = net.DialTimeout(proto, address, limit)
		return err
	})
	return conn, err
}

// request asks the application through a node's port once.
func (c powers) request(n int, port int, limit time.Duration) error {
	conn, err := c.dial("tcp", netip.AddrPortFrom(nodeAddress(n), uint16(port)).String(), limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	return ask(conn, limit)
}

func ask(conn net.Conn, limit time.Duration) error {
	conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(b[:n]), "HTTP/1.1 200") {
		return fmt.Errorf("answer is %q", b[:n])
	}
	return nil
}

func (c powers) awaitAnswer(t *testing.T, n, port int) {
	t.Helper()
	eventually(t, func(context.Context) error { return c.request(n, port, time.Second) })
}

// connect opens a connection to the pod on a node, which has answered on it.
func (c powers) connect(t *testing.T, n int) net.Conn {
	t.Helper()
	conn, err := c.dial("tcp", netip.AddrPortFrom(nodeAddress(n), nodePort).String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := ask(conn, 2*time.Second); err != nil {
		t.Fatal(err)
	}
	return conn
}

func readWithin(conn net.Conn, d time.Duration) error {
	conn.SetReadDeadline(time.Now().Add(d))
	_, err := conn.Read(make([]byte, 1))
	return err
}

// silent checks that neither a node nor its pod is reached, and that nobody says
// so: after three seconds without an answer to ARP somebody would.
func (c powers) silent(t *testing.T, n int) {
	t.Helper()
	pod := netip.AddrPortFrom(c.pod(t, n), 8080)
	var both sync.WaitGroup
	for _, a := range []netip.AddrPort{netip.AddrPortFrom(nodeAddress(n), nodePort), pod} {
		both.Go(func() {
			_, err := c.dial("tcp", a.String(), 4*time.Second)
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Errorf("connect to %s: %v; want silence", a, err)
			}
		})
	}
	both.Wait()
}

// echoes sends ICMP echo requests (RFC 792) to a node and counts the replies.
func (c powers) echoes(t *testing.T, n, count int) (replies int) {
	t.Helper()
	conn, err := c.dial("ip4:icmp", nodeAddress(n).String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i := range count {
		id, seq := uint16(0x6c64), uint16(i)
		sum := ^uint16((uint32(0x0800) + uint32(id) + uint32(seq)) % 0xffff)
		packet := []byte{8, 0, byte(sum >> 8), byte(sum), byte(id >> 8), byte(id), byte(seq >> 8), byte(seq)}
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	conn.SetReadDeadline(time.Now().Add(time.Second))
	b := make([]byte, 128)
	for replies < count {
		got, err := conn.Read(b)
		if err != nil {
			break
		}
		if got >= 28 && b[20] == 0 { // an echo reply behind the IP header
			replies++
		}
	}
	return replies
}

// inside runs a command in a host's network namespace.
func (c powers) inside(t *testing.T, host string, command ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nsenter", append([]string{"--net=" + c.NodeNetNS(host)}, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", command, err, out)
	}
	return string(out)
}

// processState is the letter of proc_pid_stat(5); T is stopped.
func (c powers) processState(t *testing.T, host, name string) string {
	t.Helper()
	s, err := c.provider.Status(t.Context(), c.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range s.Parts {
		if part.Host != host || part.Name != name {
			continue
		}
		b, err := os.ReadFile("/proc/" + strconv.Itoa(part.PID) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[0]
	}
	t.Fatalf("no %s on %s", name, host)
	return ""
}
