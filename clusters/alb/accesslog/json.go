package accesslog

import (
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// appendJSON appends the line of the side log and a newline. It is what
// json.Marshal gives, without reflection: there is a line per request.
func (l *Line) appendJSON(b []byte) []byte {
	b = append(b, `{"time":"`...)
	b = l.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","id":`...)
	b = appendString(b, l.ID)
	b = append(b, `,"node":`...)
	b = appendString(b, l.Node)
	b = append(b, `,"type":`...)
	b = appendString(b, l.Type)
	b = append(b, `,"client":`...)
	b = appendString(b, l.Client)
	b = append(b, `,"method":`...)
	b = appendString(b, l.Method)
	b = append(b, `,"path":`...)
	b = appendString(b, l.Path)
	b = append(b, `,"rule":`...)
	b = strconv.AppendInt(b, int64(l.Rule), 10)
	b = append(b, `,"action":`...)
	b = appendString(b, l.Action)
	b = append(b, `,"group":`...)
	b = appendString(b, l.Group)
	b = append(b, `,"target":`...)
	b = appendString(b, l.Target)
	b = append(b, `,"targetState":`...)
	b = appendString(b, l.TargetState)
	b = append(b, `,"local":`...)
	b = appendString(b, l.Local)
	b = append(b, `,"reused":`...)
	b = strconv.AppendBool(b, l.Reused)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(l.Status), 10)
	b = append(b, `,"targetStatus":`...)
	b = strconv.AppendInt(b, int64(l.TargetStatus), 10)
	b = append(b, `,"phase":`...)
	b = appendString(b, string(l.Phase))
	b = append(b, `,"error":`...)
	b = appendString(b, l.Error)
	b = append(b, `,"micros":{"connect":`...)
	b = strconv.AppendInt(b, l.Micros.Connect, 10)
	b = append(b, `,"sent":`...)
	b = strconv.AppendInt(b, l.Micros.Sent, 10)
	b = append(b, `,"firstByte":`...)
	b = strconv.AppendInt(b, l.Micros.FirstByte, 10)
	b = append(b, `,"total":`...)
	b = strconv.AppendInt(b, l.Micros.Total, 10)
	b = append(b, `},"received":`...)
	b = strconv.AppendInt(b, l.Received, 10)
	b = append(b, `,"sent":`...)
	b = strconv.AppendInt(b, l.Sent, 10)
	return append(b, "}\n"...)
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			// A client chose this one; encoding/json knows every rule.
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
