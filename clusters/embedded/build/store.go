package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A store keeps built components, one directory per component and key:
//
//	<component>-<key>/            the executables and manifest.json
//	<component>-<key>.tmp-<n>/    one being built, or left behind by a build that was killed
//	lock                          held while building
//
// An entry is complete if it has a manifest, which is written last, and whole if its files are what the manifest says.
type store struct {
	dir string
}

const (
	manifestName = "manifest.json"
	tempMark     = ".tmp-"
)

// A manifest says what the files of an entry were when they were built.
type manifest struct {
	Files map[string]fileRecord `json:"files"`
}

type fileRecord struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	SHA256   string    `json:"sha256"`
}

func (s store) path(it item) string {
	return filepath.Join(s.dir, it.name+"-"+it.key)
}

// check returns nil if the entry is whole, an error that is fs.ErrNotExist if there is none, another if it is damaged.
func (s store) check(it item) error {
	dir := s.path(it)
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		if _, statErr := os.Stat(dir); statErr == nil {
			return errors.New("it has no readable manifest")
		}
		return err
	}
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	for _, t := range it.packages {
		want, ok := m.Files[t.file]
		if !ok {
			return fmt.Errorf("%s is not in the manifest", t.file)
		}
		if err := want.check(filepath.Join(dir, t.file)); err != nil {
			// Not %w: a file that is missing from an entry is damage, not the absence of the entry.
			return fmt.Errorf("%s: %v", t.file, err)
		}
	}
	return nil
}

// check reads the file only if it was touched since it was recorded: hashing 300 MB each time would be most of what an
// up-to-date build takes, and files are synced before they are recorded, so a crash cannot empty one behind our back.
func (r fileRecord) check(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch {
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("not an executable file (%s)", info.Mode())
	case info.Size() != r.Size:
		return fmt.Errorf("%d bytes instead of %d", info.Size(), r.Size)
	case info.ModTime().Equal(r.Modified):
		return nil
	}
	sum, err := sumFile(path)
	if err != nil {
		return err
	}
	if sum != r.SHA256 {
		return errors.New("content differs from what was built")
	}
	return nil
}

func sumFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// lock takes the store for writing. If another process has it, waiting is called once, and lock waits.
func (s store) lock(ctx context.Context, waiting func(holder string)) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("create cache: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for told := false; ; told = true {
		// Polling instead of a blocking call, which no context could end.
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if !told {
			waiting(holder(file))
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another build: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
	// Only for the message of whoever waits: the lock itself is the kernel's and ends with the process.
	if file.Truncate(0) == nil {
		fmt.Fprintf(file, "%d", os.Getpid())
	}
	return func() { file.Close() }, nil
}

func holder(file *os.File) string {
	text := make([]byte, 20)
	n, _ := file.ReadAt(text, 0)
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (process %s)", text[:n])
}

// sweep removes what killed builds left behind. It is called with the lock held, when no other build has a temporary
// directory in use.
func (s store) sweep() error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("read cache: %w", err)
	}
	for _, entry := range entries {
		if !strings.Contains(entry.Name(), tempMark) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.dir, entry.Name())); err != nil {
			return fmt.Errorf("remove abandoned build: %w", err)
		}
	}
	return nil
}

// A stage is an entry in the making.
type stage struct {
	item
	final string
	dir   string // the executables
	work  string // scratch space of the go command
}

func (s store) stage(it item) (*stage, error) {
	dir, err := os.MkdirTemp(s.dir, it.name+"-"+it.key+tempMark)
	if err != nil {
		return nil, fmt.Errorf("create build directory: %w", err)
	}
	st := &stage{item: it, final: s.path(it), dir: dir, work: dir + "-work"}
	if err := os.Mkdir(st.work, 0o755); err != nil {
		st.discard()
		return nil, fmt.Errorf("create build directory: %w", err)
	}
	return st, nil
}

// discard removes whatever of the stage was not kept.
func (st *stage) discard() {
	os.RemoveAll(st.work)
	os.RemoveAll(st.dir)
}

// keep records the files and moves them to their place in the store. It returns their size.
func (st *stage) keep() (size int64, err error) {
	m := manifest{Files: map[string]fileRecord{}}
	for _, t := range st.packages {
		record, err := seal(filepath.Join(st.dir, t.file))
		if err != nil {
			return 0, fmt.Errorf("record %s: %w", t.file, err)
		}
		m.Files[t.file] = record
		size += record.Size
	}
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return 0, err
	}
	path := filepath.Join(st.dir, manifestName)
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return 0, fmt.Errorf("write manifest: %w", err)
	}
	if err := syncFile(path); err != nil {
		return 0, fmt.Errorf("write manifest: %w", err)
	}
	if err := os.Chmod(st.dir, 0o755); err != nil {
		return 0, err
	}
	// A directory cannot be renamed over another, so a damaged entry steps aside first. Processes that run its files keep
	// them: removing a file that is open only removes its name.
	old := st.dir + "-old"
	if err := os.Rename(st.final, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("move damaged entry aside: %w", err)
	}
	defer os.RemoveAll(old)
	if err := os.Rename(st.dir, st.final); err != nil {
		return 0, fmt.Errorf("move to cache: %w", err)
	}
	return size, nil
}

func seal(path string) (fileRecord, error) {
	if err := os.Chmod(path, 0o755); err != nil {
		return fileRecord{}, err
	}
	if err := syncFile(path); err != nil {
		return fileRecord{}, err
	}
	sum, err := sumFile(path)
	if err != nil {
		return fileRecord{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return fileRecord{}, err
	}
	return fileRecord{Size: info.Size(), Modified: info.ModTime(), SHA256: sum}, nil
}

func syncFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Sync()
}
