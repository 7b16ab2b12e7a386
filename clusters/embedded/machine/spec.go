package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// MarkerEnv is set, to the cluster's name, in the environment of every process
// of a cluster that is not a container. The sweeper looks for it, because a
// process that was forked a moment before a kill -9 is in no file.
const MarkerEnv = "LAMEDUCK_EMBEDDED_MEMBER"

// Spec describes a machine. It travels to the supervisor as a JSON file.
type Spec struct {
	Cluster string `json:"cluster"`
	Host    string `json:"host"`
	Dir     string `json:"dir"` // of the machine's state and logs
	// Private are directories which the machine has for itself, by their path.
	// A value is a directory of the real machine to use; "" is a fresh tmpfs.
	Private map[string]string `json:"private"`
	// Visible are directories that stay visible even when below a private one.
	Visible []string `json:"visible"`
	// Files replace single files by ones with this content, for readers that
	// would otherwise change settings of the whole machine (/proc/sys/...).
	Files map[string]string `json:"files,omitempty"`
	// Cgroups are directories of cgroups that the supervisor enters, with all
	// that it starts.
	Cgroups    []string    `json:"cgroups"`
	Env        []string    `json:"env"`
	Components []Component `json:"components"`
	Forwards   []Forward   `json:"forwards,omitempty"`
}

// Component is one process.
type Component struct {
	Name string   `json:"name"`
	Path string   `json:"path"`
	Args []string `json:"args"` // without the name, which is always Name
	Env  []string `json:"env,omitempty"`
	// After are conditions to wait for before the process is started.
	After []Probe `json:"after,omitempty"`
	// Ready is the condition that makes it ready; without one it is ready when
	// started.
	Ready *Probe `json:"ready,omitempty"`
}

// Probe is a condition: a Unix socket that accepts, or a URL that answers 200.
// CA, Cert and Key are files, for https.
type Probe struct {
	Unix string `json:"unix,omitempty"`
	URL  string `json:"url,omitempty"`
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// Forward passes connections on from a listener outside of the machine, given
// to Start, to an address that is reached from inside.
type Forward struct {
	Name string `json:"name"`
	To   string `json:"to"` // host:port
}

// Status is what the supervisor writes about itself, after every change.
type Status struct {
	Supervisor Process   `json:"supervisor"`
	Components []Process `json:"components"`
}

// Process is one process of a machine. PID is as the real machine sees it, 0
// if it was not started yet.
type Process struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Started string `json:"started,omitempty"` // clock ticks since boot, from /proc: tells a reused PID apart
	Ready   bool   `json:"ready"`             // Component.Ready has held once
	Exit    string `json:"exit,omitempty"`    // how it ended; empty while it runs
	Log     string `json:"log"`
}

func specFile(dir string) string   { return filepath.Join(dir, "machine.json") }
func statusFile(dir string) string { return filepath.Join(dir, "status.json") }

func readSpec(path string) (Spec, error) {
	var s Spec
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", path, err)
	}
	return s, nil
}

// LogFile is where the output of a component goes.
func LogFile(dir, component string) string { return filepath.Join(dir, "log", component+".log") }

// ReadStatus reads what the supervisor of the machine in dir wrote. A machine
// whose supervisor has not come that far has an empty status.
func ReadStatus(dir string) (Status, error) {
	var s Status
	b, err := os.ReadFile(statusFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", statusFile(dir), err)
	}
	return s, nil
}

// writeJSON replaces a file as a whole, so that a reader never sees half of it.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
