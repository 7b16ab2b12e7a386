//go:build linux || darwin

package record

import "syscall"

// freeSpace is how many bytes a user may still write below dir.
func freeSpace(dir string) (bytes uint64, known bool) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return st.Bavail * uint64(st.Bsize), true
}
