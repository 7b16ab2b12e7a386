package record

import (
	"fmt"
	"os"
)

// minFree is the free space below which no run is started. The default run
// takes a few megabytes; a disk this full has other troubles too.
const minFree = 100 << 20

// Preflight says whether runs can be recorded below parent, so that this can
// be known before anything is created. It makes parent if it is not there,
// writes a small file, forces it to disk and removes it again.
func Preflight(parent string) error {
	const advice = "choose another directory for runs"
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("make directory for runs: %w: %s", err, advice)
	}
	if err := probe(parent); err != nil {
		return fmt.Errorf("directory for runs is not writable: %w: %s", err, advice)
	}
	if free, known := freeSpace(parent); known && free < minFree {
		return fmt.Errorf("directory for runs %s has %d MB free, want at least %d MB: free some space or %s",
			parent, free>>20, minFree>>20, advice)
	}
	return nil
}

func probe(dir string) (err error) {
	f, err := os.CreateTemp(dir, ".lameduck-probe-*")
	if err != nil {
		return err
	}
	defer func() {
		if rerr := os.Remove(f.Name()); err == nil {
			err = rerr
		}
	}()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
