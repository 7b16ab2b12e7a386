//go:build e2e && linux

package record

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lameduck/harness"
)

// smallDisk mounts a file system of 8 MB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatalf("mount (needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestE2EPreflightOfASmallDisk(t *testing.T) {
	dir := smallDisk(t)
	want := "directory for runs " + dir + " has 8 MB free, want at least 100 MB: free some space or choose another directory for runs"
	if err := Preflight(dir); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Preflight(dir); !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "directory for runs is not writable: ") {
		t.Errorf("full: got %v", err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := Preflight(dir); !errors.Is(err, syscall.EROFS) {
		t.Errorf("read-only: got %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestE2EDiskThatFillsUp(t *testing.T) {
	run := aRun()
	s := &Store{dir: smallDisk(t), create: createFile}
	if err := writeJSON(filepath.Join(s.dir, runFile), harness.Run{Schema: harness.SchemaVersion, Plan: run.Plan}); err != nil {
		t.Fatal(err)
	}
	rec := openTrial(t, s, run.Plan.Trials[0])
	line := []byte(strings.Repeat("x", 1000))
	for i := 0; rec.Err() == nil && i < 20000; i++ {
		rec.Log(harness.LogApp, line)
		rec.Request(aRequest(i))
	}
	if err := rec.Finish(aResult(run.Plan.Trials[0])); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Finish() = %v, want ENOSPC", err)
	}
	if err := s.Finish(harness.RunEnd{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the run's Finish() = %v, want ENOSPC", err)
	}
	trial := reopen(t, s).Trials[0]
	if trial.State() != Incomplete {
		t.Errorf("the trial is %s", trial.State())
	}
	if _, err := trial.Requests(func(harness.Request) error { return nil }); err != nil {
		t.Errorf("what was written is not readable: %v", err)
	}
}
