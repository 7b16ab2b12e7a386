package evidence

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// fakeLog answers each request for a log with the next of its answers, and
// every later one with the last.
type fakeLog struct {
	mu      sync.Mutex
	answers []any // string or error
	asked   []corev1.PodLogOptions
}

func (l *fakeLog) requests() []corev1.PodLogOptions {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked)
}

// serve makes the client answer so; rec is woken at each request.
func (l *fakeLog) serve(client *fake.Clientset, rec *memory) {
	client.PrependReactor("get", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "log" {
			return false, nil, nil
		}
		defer rec.change(func() {})
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked = append(l.asked, *action.(clienttesting.GenericActionImpl).Value.(*corev1.PodLogOptions))
		answer := l.answers[min(len(l.asked), len(l.answers))-1]
		if err, ok := answer.(error); ok {
			return true, nil, err
		}
		return true, &runtime.Unknown{Raw: []byte(answer.(string))}, nil
	})
}

const (
	line1 = `2026-01-01T00:00:01.1Z {"event":"listening"}` + "\n"
	line2 = `2026-01-01T00:00:01.2Z {"id":"r1"}` + "\n"
	line3 = `2026-01-01T00:00:02.3Z {"event":"exit"}` + "\n"
)

func TestLogs(t *testing.T) {
	gone := errors.New("pod is gone")
	all := []string{`app {"pod":"app-1","event":"listening"}`, `app {"pod":"app-1","id":"r1"}`, `app {"pod":"app-1","event":"exit"}`}
	for name, c := range map[string]struct {
		answers    []any
		before     int // requests to wait for before the pod goes
		want       []string
		incomplete string
	}{
		"one stream":                        {[]any{line1 + line2 + line3, gone}, 1, all, ""},
		"a stream that breaks off":          {[]any{line1, line1 + line2, line2 + line3, gone}, 3, all, ""},
		"the rest after the end":            {[]any{line1 + line2, line2 + line3}, 2, all, ""},
		"not readable any more":             {[]any{line1 + line2, gone}, 2, all[:2], "log-incomplete app-1 error=open log:"},
		"never readable":                    {[]any{gone}, 1, nil, "log-incomplete app-1 error=open log:"},
		"a kubelet that fails in the midst": {[]any{line1 + "failed to watch file\n"}, 1, all[:1], "log-incomplete app-1 error=read log: failed to watch file"},
		"last line without an end":          {[]any{line1 + strings.TrimSuffix(line2, "\n"), gone}, 1, all[:2], ""},
	} {
		t.Run(name, func(t *testing.T) {
			client, rec, w := start(t)
			log := &fakeLog{answers: c.answers}
			log.serve(client, rec)
			pod := newPod("app-1")
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
			put(t, client, pod)
			rec.waitFor(t, "log", func() bool { return len(log.requests()) >= c.before })
			remove(t, client, pod)
			stop(t, w)
			if got := rec.logged(); !slices.Equal(got, c.want) {
				t.Errorf("log\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			told := rec.told()
			i := slices.IndexFunc(told, func(s string) bool { return strings.HasPrefix(s, "log-incomplete") })
			switch {
			case i < 0 && c.incomplete != "":
				t.Errorf("nothing says that the log is incomplete: %v", told)
			case i >= 0 && (c.incomplete == "" || !strings.HasPrefix(told[i], c.incomplete)):
				t.Errorf("recorded %q, want %q", told[i], c.incomplete)
			}
			for i, o := range log.requests() {
				if o.Container != "app" || !o.Timestamps {
					t.Errorf("request %d for the log was %+v", i, o)
				}
			}
		})
	}
}

func TestLogGoesOnWhereItBrokeOff(t *testing.T) {
	client, rec, _ := start(t)
	log := &fakeLog{answers: []any{line1 + line2, line3}}
	log.serve(client, rec)
	put(t, client, withExit(newPod("app-1"), "a", 0)) // started and ended before it was seen
	rec.waitFor(t, "log", func() bool { return len(rec.logged()) == 3 })
	asked := log.requests()
	if asked[0].SinceTime != nil {
		t.Errorf("first asked since %v, want the start", asked[0].SinceTime)
	}
	want := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	if since := asked[1].SinceTime; since == nil || !since.Time.Equal(want) {
		t.Errorf("asked again since %v, want %v", since, want)
	}
}

func TestWithPod(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1}`:     `{"pod":"p","a":1}`,
		`  { "a":1} `: `{"pod":"p","a":1}`,
		`{}`:          `{"pod":"p"}`,
		`{ }`:         `{"pod":"p"}`,
		``:            `{"pod":"p","raw":""}`,
		`panic: "x"`:  `{"pod":"p","raw":"panic: \"x\""}`,
		`{"a":`:       `{"pod":"p","raw":"{\"a\":"}`,
		`[1]`:         `{"pod":"p","raw":"[1]"}`,
	} {
		if got := string(withPod("p", []byte(in))); got != want {
			t.Errorf("withPod(%q) = %s, want %s", in, got, want)
		}
	}
}
