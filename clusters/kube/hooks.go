package kube

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"lameduck/harness"
)

// preStopPath of the built-in application answers after ?sleep= (see cmd/target).
const preStopPath = "/lameduck/prestop"

// checkPreStop refuses a hook that has no form in Kubernetes.
func checkPreStop(w harness.Workload) error {
	byApp := w.App != nil && w.PreStopBy != harness.PreStopSleep
	if w.PreStopSleep.Duration%time.Second != 0 && (byApp || w.PreStopBy == harness.PreStopSleep) {
		return fmt.Errorf("workload.preStopSleep is %s: want whole seconds (Kubernetes API reference, SleepAction; sleep of POSIX)", w.PreStopSleep)
	}
	return nil
}

// preStop is the hook that a setup asks for, nil for none. The sleep action is
// refused by the API server if it is longer than the grace period (KEP-3960;
// validateSleepAction in pkg/apis/core/validation); a command is not, and that is
// what people have who write sleep 40 and forget the grace period.
func preStop(w harness.Workload) *corev1.Lifecycle {
	d := w.PreStopSleep
	if d.Duration <= 0 {
		return nil
	}
	seconds := wholeSeconds(d)
	hook := &corev1.LifecycleHandler{}
	switch {
	case w.PreStopBy == harness.PreStopSleep:
		hook.Sleep = &corev1.SleepAction{Seconds: seconds}
	case w.PreStopBy == harness.PreStopHTTP:
		hook.HTTPGet = &corev1.HTTPGetAction{Path: preStopPath + "?sleep=" + d.String(), Port: intstr.FromString(portName)}
	case w.App != nil: // its image has no command of ours
		hook.Exec = &corev1.ExecAction{Command: []string{"sleep", strconv.FormatInt(seconds, 10)}}
	default:
		hook.Exec = &corev1.ExecAction{Command: []string{targetBinary, "sleep", d.String()}}
	}
	return &corev1.Lifecycle{PreStop: hook}
}

// readPreStop says how long the preStop hook of a pod's container sleeps, and by
// what; "" if it has none. A hook that does something else is an error: it
// cannot be compared with what was asked for.
func readPreStop(pod *corev1.Pod, container string) (harness.Duration, harness.PreStopBy, error) {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	if i < 0 {
		return harness.Duration{}, "", fmt.Errorf("has no container %s", container)
	}
	lifecycle := pod.Spec.Containers[i].Lifecycle
	if lifecycle == nil || lifecycle.PreStop == nil {
		return harness.Duration{}, "", nil
	}
	switch hook := lifecycle.PreStop; {
	case hook.Sleep != nil:
		return harness.Dur(time.Duration(hook.Sleep.Seconds) * time.Second), harness.PreStopSleep, nil
	case hook.HTTPGet != nil:
		return readHTTPHook(hook.HTTPGet)
	case hook.Exec != nil:
		return readCommandHook(hook.Exec.Command)
	}
	return harness.Duration{}, "", errors.New("preStop is neither a command nor a sleep nor a request")
}

func readHTTPHook(get *corev1.HTTPGetAction) (harness.Duration, harness.PreStopBy, error) {
	u, err := url.Parse(get.Path)
	if err != nil || u.Path != preStopPath {
		return harness.Duration{}, "", fmt.Errorf("preStop gets %s, want %s", get.Path, preStopPath)
	}
	return hookTime(u.Query().Get("sleep"), harness.PreStopHTTP)
}

func readCommandHook(command []string) (harness.Duration, harness.PreStopBy, error) {
	switch {
	case len(command) == 3 && command[0] == targetBinary && command[1] == "sleep":
		return hookTime(command[2], harness.PreStopExec)
	case len(command) == 2 && command[0] == "sleep":
		return hookTime(command[1]+"s", harness.PreStopExec)
	}
	return harness.Duration{}, "", fmt.Errorf("preStop runs %q, want %s sleep or sleep", command, targetBinary)
}

func hookTime(text string, by harness.PreStopBy) (harness.Duration, harness.PreStopBy, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return harness.Duration{}, "", fmt.Errorf("preStop: %w", err)
	}
	return harness.Dur(d), by, nil
}
