package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Alive says whether the process still exists and is the one that was started.
// A zombie is not alive.
func (p Process) Alive() bool {
	if p.PID == 0 || p.Exit != "" {
		return false
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.PID), "stat"))
	if err != nil {
		return false
	}
	fields := statFields(string(b))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X" && parseStartTime(string(b)) == p.Started
}

// statFields are the fields of /proc/PID/stat from the third (state) on. The
// second, the command's name, may itself contain spaces and parentheses.
func statFields(stat string) []string {
	_, rest, ok := cutLast(stat, ")")
	if !ok {
		return nil
	}
	return strings.Fields(rest)
}

// parseStartTime is field 22 of /proc/PID/stat (proc_pid_stat(5)).
func parseStartTime(stat string) string {
	fields := statFields(stat)
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
