package reports

import (
	"fmt"
	"slices"

	"github.com/olekukonko/tablewriter/tw"
)

// podsFaults is the place of the column of faults in the table of removed pods.
const podsFaults = 3

func (md *markdown) pods() error {
	faults := anyFaults(md.r.Cells)
	var table [][]string
	killed := ""
	for _, c := range md.r.Cells {
		for _, e := range endings(c.Pods) {
			if e.Exited && e.ExitCode == exitSIGKILL {
				killed = " SIGKILL means that the grace period was over before the application was done."
			}
			exit, gone := "-", "-"
			if e.Exited {
				exit = rangeText(e.First, e.Last)
			}
			if e.Gone > 0 {
				gone = rangeText(e.GoneEarliest, e.GoneLast)
			}
			row := []string{string(c.TargetType), c.Mitigation, string(c.Connections), fmt.Sprint(e.Pods), e.exitText(), orMinus(e.Reason), exit, gone}
			if faults {
				row = slices.Insert(row, podsFaults, orMinus(c.Faults))
			}
			table = append(table, row)
		}
	}
	if len(table) == 0 {
		return nil
	}
	head := []string{"target", "mitigation", "conns", "pods", "exit code", "reason", "deletion to exit", "deletion to gone"}
	align := tw.Alignment{tw.AlignLeft, tw.AlignLeft, tw.AlignLeft, tw.AlignRight, tw.AlignRight, tw.AlignLeft, tw.AlignRight, tw.AlignRight}
	if faults {
		head, align = slices.Insert(head, podsFaults, "faults"), slices.Insert(align, podsFaults, tw.AlignLeft)
	}
	text, err := markdownTable(head, align, table)
	if err != nil {
		return err
	}
	md.printf("## How the removed pods ended\n\n%s\nTimes are when the API server told it.%s\n\n", text, killed)
	return nil
}

func orMinus(s string) string {
	if s == "" {
		return "-"
	}
	return escape(oneLine(s))
}
