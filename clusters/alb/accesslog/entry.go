package accesslog

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"
)

// names are what an access log calls a load balancer and its target groups. The
// account is AWS's example account; the last part, which AWS draws at creation,
// is derived from the name, so that it is the same after a restart.
type names struct {
	loadBalancer string
	groups       *sync.Map // name -> ARN
}

func namesOf(namespace, ingress string) names {
	name := namespace + "/" + ingress
	return names{loadBalancer: "app/" + flat(name) + "/" + resourceID(name), groups: new(sync.Map)}
}

// flat makes a Kubernetes name one that AWS accepts.
func flat(name string) string {
	return "k8s-" + strings.NewReplacer("/", "-", ":", "-").Replace(name)
}

func resourceID(name string) string {
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}

func (n names) groupARN(group string) string {
	if arn, ok := n.groups.Load(group); ok {
		return arn.(string)
	}
	arn := "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/" + flat(group) + "/" + resourceID(group)
	n.groups.Store(group, arn)
	return arn
}

// entryTime is the format of times: ISO 8601 with microseconds.
const entryTime = "2006-01-02T15:04:05.000000Z"

// appendEntry appends one entry of an ALB's access log (AWS user guide for
// Application Load Balancers, Access logs: access log entries). Fields that need
// what the stand-in does not have (ACM certificates, Lambda, desync findings)
// have the value that AWS documents for that: "-".
func (n names) appendEntry(b []byte, l *Line) []byte {
	b = append(b, l.Type...)
	b = append(b, ' ')
	b = l.End.UTC().AppendFormat(b, entryTime)
	b = append(b, ' ')
	b = append(b, n.loadBalancer...)
	b = append(b, ' ')
	b = append(b, l.Client...)
	b = append(b, ' ')
	// A target that did not take the connection is not named: the field is "-"
	// "if a connection to the target could not be established".
	target := l.Target
	if target == "" || l.Local == "" {
		target = "-"
	}
	b = append(b, target...)
	b = appendTimes(b, l)
	b = append(b, ' ')
	b = appendStatus(b, l.Status)
	b = append(b, ' ')
	b = appendStatus(b, l.TargetStatus)
	b = append(b, ' ')
	b = strconv.AppendInt(b, l.ReceivedTotal, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, l.SentTotal, 10)
	b = append(b, ` "`...)
	b = appendRequest(b, l)
	b = append(b, `" `...)
	b = appendQuoted(b, l.UserAgent)
	b = append(b, ' ')
	b = appendOrDash(b, l.TLSCipher)
	b = append(b, ' ')
	b = appendOrDash(b, l.TLSProtocol)
	b = append(b, ' ')
	if l.Group == "" {
		b = append(b, '-')
	} else {
		b = append(b, n.groupARN(l.Group)...)
	}
	b = append(b, ' ')
	b = appendQuoted(b, l.TraceID)
	b = append(b, ' ')
	b = appendQuoted(b, l.ServerName)
	b = append(b, ` "-" `...) // chosen_cert_arn
	if l.Rule < 0 {
		b = append(b, '-')
	} else {
		b = strconv.AppendInt(b, int64(l.Rule), 10)
	}
	b = append(b, ' ')
	b = l.Time.UTC().AppendFormat(b, entryTime)
	b = append(b, ' ')
	b = appendQuoted(b, l.Action)
	b = append(b, ' ')
	b = appendQuoted(b, l.RedirectURL)
	b = append(b, ` "-" `...) // error_reason: not for ordinary 502, 503 and 504
	b = append(b, '"')
	b = append(b, target...)
	b = append(b, `" "`...)
	b = appendStatus(b, l.TargetStatus)
	return append(b, "\" \"-\" \"-\"\n"...)
}

// appendTimes appends request, target and response processing time, in seconds
// with three decimals. The first is -1 if the request was not handed to a
// target, the second if the target did not answer, the third if the answer was
// not passed on.
func appendTimes(b []byte, l *Line) []byte {
	request, target, response := int64(-1), int64(-1), int64(-1)
	switch m := l.Micros; {
	case m.Sent < 0:
	case m.FirstByte < 0:
		// Closed or silent: the time until then counts as the target's.
		request, target = m.Sent, m.Total-m.Sent
	default:
		request, target, response = m.Sent, m.FirstByte-m.Sent, m.Total-m.FirstByte
	}
	for _, t := range []int64{request, target, response} {
		b = append(b, ' ')
		if t < 0 {
			b = append(b, "-1"...)
			continue
		}
		b = strconv.AppendFloat(b, float64(t)/float64(time.Second/time.Microsecond), 'f', 3, 64)
	}
	return b
}

func appendStatus(b []byte, status int) []byte {
	if status == 0 {
		return append(b, '-')
	}
	return strconv.AppendInt(b, int64(status), 10)
}

// appendRequest appends method, URL with protocol, host and port, and version.
func appendRequest(b []byte, l *Line) []byte {
	if l.Method == "" { // nothing that could be parsed came
		return append(b, "- "+l.Scheme+"://"+l.Host+":"+l.Port+"- -"...)
	}
	b = appendEscaped(b, l.Method)
	b = append(b, ' ')
	if !strings.Contains(l.Path, "://") {
		b = append(b, l.Scheme...)
		b = append(b, "://"...)
		host, _, hasPort := strings.Cut(l.Host, ":")
		if !hasPort {
			host = l.Host
		}
		b = appendEscaped(b, host)
		b = append(b, ':')
		b = append(b, l.Port...)
	}
	b = appendEscaped(b, l.Path)
	b = append(b, ' ')
	return append(b, l.Proto...)
}

func appendOrDash(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	return append(b, s...)
}

func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	if s == "" {
		b = append(b, '-')
	} else {
		b = appendEscaped(b, s)
	}
	return append(b, '"')
}

// appendEscaped escapes what would end the field: quotes, backslashes and
// control characters as \xHH (the user guide's rule for user_agent; inferred for
// the others).
func appendEscaped(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			b = append(b, '\\', 'x', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
			continue
		}
		b = append(b, s[i])
	}
	return b
}

// statusClass is "2XX" for 200, and so on, as CloudWatch names them.
func statusClass(status int) string {
	if status < 100 || status > 599 {
		return ""
	}
	return strconv.Itoa(status/100) + "XX"
}

