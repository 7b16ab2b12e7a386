package evidence

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lameduck/harness"
)

const (
	// firstRetry and maxRetry are how long a log that has ended, of a pod that
	// has not, is left alone before it is asked for again.
	firstRetry = 100 * time.Millisecond
	maxRetry   = 2 * time.Second
	// longestLine is much more than the 16 KiB at which a container runtime cuts
	// lines (containerd, max_container_log_line_size).
	longestLine = 1 << 20
)

// logFollower copies one pod's log to the record, from its start to its end.
//
// The API server ends a stream without an error when the container has exited,
// but also when the kubelet behind it goes away. So the log is asked for again,
// from the last line on, until the pod is known to log no more.
type logFollower struct {
	w    *Watcher
	pod  string
	last time.Time // the runtime's stamp of the last line that was copied

	ended     chan struct{} // closed by noMore
	endedOnce sync.Once
}

func newLogFollower(w *Watcher, pod string) *logFollower {
	return &logFollower{w: w, pod: pod, ended: make(chan struct{})}
}

// noMore says that the pod's container has exited for good.
func (f *logFollower) noMore() { f.endedOnce.Do(func() { close(f.ended) }) }

// follow returns at the end of the log, or when ctx ends.
func (f *logFollower) follow(ctx context.Context) {
	retry := firstRetry
	for {
		before := f.last
		err := f.copy(ctx, true)
		if f.last != before {
			retry = firstRetry
		}
		timer := time.NewTimer(retry)
		select {
		case <-f.ended:
			timer.Stop()
			f.finish(ctx, err)
			return
		case <-ctx.Done():
			timer.Stop()
			f.incomplete(errors.New("the watchers were stopped before its end"))
			return
		case <-timer.C:
			retry = min(2*retry, maxRetry)
		}
	}
}

// finish reads what is left of a log that gets no more lines. followed is how
// the last stream ended.
func (f *logFollower) finish(ctx context.Context, followed error) {
	// The rest cannot be read any more if the pod is gone. A stream that ended
	// well had it already: the kubelet ends it after the last line only.
	if err := f.copy(ctx, false); err != nil && followed != nil {
		f.incomplete(errors.Join(followed, err))
	}
}

func (f *logFollower) incomplete(err error) {
	f.w.emit(harness.EventLogIncomplete, f.pod, map[string]string{"error": strings.ReplaceAll(err.Error(), "\n", "; ")})
}

// copy reads the log from the last copied line on; with follow until the
// container exits.
func (f *logFollower) copy(ctx context.Context, follow bool) error {
	// With timestamps every line begins with the runtime's own stamp. It is what
	// a new stream goes on from.
	options := &corev1.PodLogOptions{Container: f.w.workload.Container, Follow: follow, Timestamps: true}
	if !f.last.IsZero() {
		// The API knows whole seconds only; line skips what comes twice.
		options.SinceTime = &metav1.Time{Time: f.last.Truncate(time.Second)}
	}
	stream, err := f.w.client.CoreV1().Pods(f.w.workload.Namespace).GetLogs(f.pod, options).Stream(ctx)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer stream.Close()
	lines := bufio.NewScanner(stream)
	lines.Buffer(make([]byte, 0, 4096), longestLine)
	var message string
	for lines.Scan() {
		if !f.line(lines.Bytes()) {
			message = lines.Text()
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read log: %w", err)
	}
	if message != "" {
		// A kubelet that fails in the middle of a log says so in the log.
		return fmt.Errorf("read log: %s", message)
	}
	return nil
}

// line copies one line, and says whether it was one.
func (f *logFollower) line(line []byte) bool {
	stamp, text, _ := bytes.Cut(line, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return false
	}
	if at.After(f.last) {
		f.last = at
		f.w.rec.Log(harness.LogApp, withPod(f.pod, text))
	}
	return true
}

// withPod adds the pod's name to a line that is a JSON object; any other line
// becomes one, as {"pod":...,"raw":...}.
func withPod(pod string, line []byte) []byte {
	name, _ := json.Marshal(pod) // a string always has a JSON form
	line = bytes.TrimSpace(line)
	if len(line) < 2 || line[0] != '{' || !json.Valid(line) {
		raw, _ := json.Marshal(string(line))
		return fmt.Appendf(nil, `{"pod":%s,"raw":%s}`, name, raw)
	}
	rest := bytes.TrimSpace(line[1:])
	if rest[0] == '}' {
		return fmt.Appendf(nil, `{"pod":%s}`, name)
	}
	return fmt.Appendf(nil, `{"pod":%s,%s`, name, rest)
}
