package machine

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// isolate gives the calling process, which must be alone in a new mount
// namespace, the machine's view of the file system. It returns the real
// machine's /proc, through which PIDs can be translated.
func isolate(spec Spec) (realProc *os.File, err error) {
	// Slave, not private: an unmount on the real machine must not be held up
	// by our copy of the mount, and nothing of ours gets out.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, fmt.Errorf("detach mounts: %w", err)
	}
	realProc, err = os.Open("/proc")
	if err != nil {
		return nil, err
	}
	visible, err := openHidden(spec)
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range slices.Sorted(maps.Keys(spec.Private)) {
		if err := mountPrivate(dir, spec.Private[dir]); err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(visible)) {
		if err := bindOpen(visible[path], path); err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(spec.Files)) {
		if err := replaceFile(spec, path); err != nil {
			return nil, err
		}
	}
	return realProc, nil
}

// openHidden opens the visible directories that a private one will hide.
func openHidden(spec Spec) (map[string]*os.File, error) {
	open := make(map[string]*os.File)
	for _, path := range spec.Visible {
		for hidden := range spec.Private {
			if path == hidden || strings.HasPrefix(path, hidden+"/") {
				f, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
				if err != nil {
					return nil, err
				}
				open[path] = f
			}
		}
	}
	return open, nil
}

func mountPrivate(dir, source string) error {
	if source == "" {
		err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755")
		if err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
		}
		return nil
	}
	if err := os.MkdirAll(source, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, dir, err)
	}
	// Volumes that ask for mount propagation need a shared mount, as on a real
	// node, where systemd makes all of them shared.
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %s: %w", dir, err)
	}
	return nil
}

func bindOpen(dir *os.File, path string) error {
	defer dir.Close()
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep %s visible: %w", path, err)
	}
	return nil
}

// replaceFile covers one file by a private one. A file that this kernel does
// not have needs no cover.
func replaceFile(spec Spec, path string) error {
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	cover := filepath.Join(spec.Dir, "files", path)
	if err := os.MkdirAll(filepath.Dir(cover), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(cover, []byte(spec.Files[path]), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(cover, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover %s: %w", path, err)
	}
	return nil
}
