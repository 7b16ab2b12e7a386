package sweep

import (
	"slices"
	"strings"
)

// mountsBelow are the mount points at or below dir in the text of a
// /proc/PID/mountinfo, in the order in which they have to be removed.
func mountsBelow(mountinfo, dir string) []string {
	var found []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape.Replace(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			found = append(found, point)
		}
	}
	slices.Reverse(found)
	return found
}

// unescape undoes the octal escapes of proc_pid_mountinfo(5).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
