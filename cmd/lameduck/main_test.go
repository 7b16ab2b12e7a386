package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lameduck runs the command line in this process.
func lameduck(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &errOut)
	return code, out.String(), errOut.String()
}

// Wrong usage ends with exit code 2 and one line that names what is wrong and
// what would be right; nothing is created.
func TestWrongUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"frobnicate", `unknown command "frobnicate"`},
		{"run", "no experiment; usage: lameduck run EXPERIMENT..."},
		{"run scale-in more", `experiment "more": want one of`},
		{"run scale-out", "scale-in"},
		{"run scale-in --no-such-flag", "unknown flag: --no-such-flag; see lameduck run --help"},
		{"run scale-in --repeats -1", "--repeats, --rate and --parallel"},
		{"run scale-in --rate 0", "--rate is 0: want a number above 0"},
		{"run scale-in --parallel 100", "at most 16 trials in parallel"},
		{"cluster status --name nothing-there", "cluster nothing-there: not found"},
		{"cluster down --name nothing-there", "cluster nothing-there: not found"},
		{"cluster clean --name ../x", "cluster name \"../x\": want"},
		{"run scale-in --repeats 5000", "repeats is 5000: want 1..1000"},
		{"run scale-in --repeats many", `invalid argument "many"`},
		{"run scale-in --rate 100000", "load.rate is 100000: want 1..5000"},
		{"run scale-in --connections old", `connections: "old": want pooled, new or long-lived`},
		{"run scale-in --mitigations hope", "--mitigations: "},
		{"run scale-in --mitigations none,none", "cell instance none pooled is there twice"},
		{"run scale-in --connections pooled,pooled", "is there twice: name each mitigation, target type, connection kind and fault set once"},
		{"run scale-in --use-cluster --nodes 3", "--nodes concerns a new cluster"},
		{"run scale-in --use-cluster --keep-cluster", "--keep-cluster concerns a new cluster"},
		{"run scale-in-cpu scale-in --rate 100000", "scale-in-cpu: load.rate is 100000"},
		{"run --resume " + file, "--resume: "},
		{"run --resume=", "--resume is empty"},
		{"run scale-in --resume x", "scale-in: the experiment is that of the run: leave it out with --resume"},
		{"run --resume x --rate 5", "--rate concerns a new run: leave it out with --resume"},
		{"run --resume x --out y", "--out concerns a new run"},
		{"run scale-in --mitigations=", "--mitigations is empty: leave it out for the default"},
		{"run scale-in --out=", "--out is empty"},
		{"cluster clean --name=", "--name is empty: name a cluster, or leave the flag out to clean all"},
		{"run scale-in --clean-cluster", "--clean-cluster goes with --use-cluster"},
		{"run scale-in --cluster nimbus", `--cluster "nimbus": want embedded`},
		{"run scale-in --out " + file, "--out: "},
		{"report " + filepath.Join(t.TempDir(), "none"), "none"},
		{"report x --format pdf", `--format: `},
		{"alb", "log directory is empty: name one"},
		{"alb --address here", `address is "here": want an IP address`},
		{"alb --deregistration-lag soon", "deregistration-lag"},
		{"alb conformance --facts (", "--facts: "},
		{"run scale-in --targets pod", `targetTypes: "pod": want instance or ip`},
		{"cluster sideways", `unknown command "sideways"`},
		{"cluster up extra", "usage: lameduck cluster up"},
	} {
		code, stdout, stderr := lameduck(t, strings.Fields(c.args)...)
		if code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", c.args, code, exitUsage)
		}
		if !strings.HasPrefix(stderr, "lameduck: ") || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: stderr %q, want %q in it", c.args, stderr, c.want)
		}
		if stdout != "" {
			t.Errorf("%s: an error has output on stdout: %q", c.args, stdout)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, stdout, stderr := lameduck(t)
	if code != exitOK || !strings.Contains(stdout, "cluster") || stderr != "" {
		t.Errorf("without arguments: exit code %d, stdout %q, stderr %q; want the help", code, stdout, stderr)
	}
	for _, hidden := range []string{"embedded-host", "embedded-forward", "worker"} {
		if strings.Contains(stdout, hidden) {
			t.Errorf("the help lists %s, which is not for users", hidden)
		}
	}
	code, stdout, _ = lameduck(t, "version")
	if code != exitOK || stdout != "lameduck devel\n" {
		t.Errorf("version: exit code %d, %q", code, stdout)
	}
}
