package evidence

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"lameduck/harness"
)

// objectEventTracker records core/v1 Events. Their sources merge repetitions
// into one object with a count; a higher count is a new occurrence.
type objectEventTracker struct {
	w        *Watcher
	recorded map[types.UID]int32 // count
}

func (t *objectEventTracker) seen(e *corev1.Event) {
	count := max(e.Count, 1)
	if e.Series != nil { // as events.k8s.io/v1 counts
		count = max(count, e.Series.Count)
	}
	if count <= t.recorded[e.UID] {
		return
	}
	t.recorded[e.UID] = count
	detail := map[string]string{"type": e.Type, "reason": e.Reason, "message": e.Message}
	if count > 1 {
		detail["count"] = strconv.Itoa(int(count))
	}
	t.w.emit(harness.EventKubernetes, e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name, detail)
}
