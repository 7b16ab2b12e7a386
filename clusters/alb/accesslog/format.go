package accesslog

import (
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The access log's format: AWS user guide for Application Load Balancers,
// Access logs, "Access log entries" (grade D), except where a comment says
// otherwise. New columns are appended by AWS now and then; this is the list up
// to classification_reason.

const (
	// isoMicros is ISO 8601 as the guide's examples have it.
	isoMicros = "2006-01-02T15:04:05.000000Z"
	// maxUserAgent is where a User-Agent is cut off: 8 KB.
	maxUserAgent = 8 << 10
	// arnPrefix stands where AWS has its region and account.
	arnPrefix = "arn:aws:elasticloadbalancing:local:000000000000:targetgroup/"
	// certARN stands for the certificate of HTTPS listeners: a stand-in has one.
	certARN = "arn:aws:acm:local:000000000000:certificate/lameduck"
)

// loadBalancerID is the resource ID of a load balancer, as column elb has it:
// app/name/id. The id is the same in every run.
func loadBalancerID(namespace, ingress string) string {
	name := namespace + "/" + ingress
	return "app/" + resourceName(name) + "/" + resourceID(name)
}

// groupARN is what column target_group_arn has of a target group.
func groupARN(name string) string {
	return arnPrefix + resourceName(name) + "/" + resourceID(name)
}

// resourceName has no characters that mean something in an ARN.
func resourceName(name string) string {
	return strings.NewReplacer("/", "-", ":", "-").Replace(name)
}

// resourceID is 16 hexadecimal digits.
func resourceID(name string) string {
	h := fnv.New64a()
	h.Write([]byte(name))
	id := strconv.FormatUint(h.Sum64(), 16)
	return strings.Repeat("0", 16-len(id)) + id
}

// appendEntry appends the line of the access log and a newline. elb is the
// load balancer's resource ID, arn that of the line's target group, "" without
// one.
func (l *Line) appendEntry(b []byte, elb, arn string) []byte {
	request, target, response := l.ProcessingTimes()
	b = append(b, l.Type...)
	b = append(b, ' ')
	b = l.End.UTC().AppendFormat(b, isoMicros)
	b = append(b, ' ')
	b = append(b, elb...)
	b = append(b, ' ')
	b = appendOr(b, l.Client)
	b = append(b, ' ')
	b = appendOr(b, l.Target)
	b = append(b, ' ')
	b = appendSeconds(b, request)
	b = append(b, ' ')
	b = appendSeconds(b, target)
	b = append(b, ' ')
	b = appendSeconds(b, response)
	b = append(b, ' ')
	b = appendStatus(b, l.Status)
	b = append(b, ' ')
	b = appendStatus(b, l.TargetStatus)
	b = append(b, ' ')
	b = strconv.AppendInt(b, l.ReceivedTotal, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, l.SentTotal, 10)
	b = append(b, ' ')
	b = l.appendRequest(b)
	b = append(b, ' ')
	b = appendQuoted(b, l.UserAgent[:min(len(l.UserAgent), maxUserAgent)])
	b = append(b, ' ')
	b = appendOr(b, l.TLSCipher)
	b = append(b, ' ')
	b = appendOr(b, l.TLSProtocol)
	b = append(b, ' ')
	b = appendOr(b, arn)
	b = append(b, ' ')
	b = appendQuoted(b, l.TraceID)
	b = append(b, ' ')
	b = appendQuoted(b, l.ServerName)
	b = append(b, ' ')
	if l.Scheme == "https" {
		b = appendQuoted(b, certARN)
	} else {
		b = append(b, `"-"`...)
	}
	b = append(b, ' ')
	if l.Rule < 0 {
		b = append(b, '-') // an error before the rules were evaluated
	} else {
		b = strconv.AppendInt(b, int64(l.Rule), 10)
	}
	b = append(b, ' ')
	b = l.Time.UTC().AppendFormat(b, isoMicros)
	b = append(b, ' ')
	b = appendQuoted(b, l.Action)
	b = append(b, ' ')
	b = appendQuoted(b, l.RedirectURL)
	// error_reason is for Lambda functions, AWS WAF and authentication: it says
	// nothing of ordinary failures. Ours are in the side log.
	b = append(b, ` "-" `...)
	b = appendQuoted(b, l.Target) // target:port_list: one request, one target
	b = append(b, ` "`...)
	b = appendStatus(b, l.TargetStatus)
	b = append(b, `" `...)
	classification, reason := l.classification()
	b = appendQuoted(b, classification)
	b = append(b, ' ')
	b = appendQuoted(b, reason)
	return append(b, '\n')
}

// ProcessingTimes are the three columns of that name in microseconds, -1 as
// the guide says: all are -1 if the request could not be given to a target, and
// the last one if no answer was passed on. A target that closes or stays
// silent has the time until then (Troubleshooting, HTTP 502 and 504).
func (l *Line) ProcessingTimes() (request, target, response int64) {
	m := l.Micros
	switch {
	case l.Target == "" || m.Sent < 0:
		return -1, -1, -1
	case m.FirstByte < 0:
		return m.Sent, m.Total - m.Sent, -1
	default:
		// The head is passed on as soon as it is there.
		return m.Sent, max(m.FirstByte-m.Sent, 0), 0
	}
}

// classification is the desync mitigation's. Requests that RFC 9112 does not
// allow are refused, and those are Severe; the rest is compliant, which is "-".
// Which of the guide's reasons it was is told apart only by the version: the
// side log's Error has no more (I).
func (l *Line) classification() (class, reason string) {
	if l.Error != ErrorRefused {
		return "", ""
	}
	switch l.Status {
	case http.StatusBadRequest:
		return "Severe", "BadHeader"
	case http.StatusHTTPVersionNotSupported:
		return "Severe", "BadVersion"
	default:
		return "", ""
	}
}

// appendRequest appends the request's line: method, protocol://host:port/uri,
// version, the uri as the client sent it. A request that could not be read has
// - for what is not known (O).
func (l *Line) appendRequest(b []byte) []byte {
	b = append(b, '"')
	b = appendEscapedOr(b, l.Method)
	b = append(b, ' ')
	b = append(b, l.Scheme...)
	b = append(b, "://"...)
	b = appendEscaped(b, withoutPort(l.Host))
	b = append(b, ':')
	b = append(b, l.Port...)
	b = appendEscapedOr(b, originForm(l.Path))
	b = append(b, ' ')
	b = appendOr(b, l.Proto)
	return append(b, '"')
}

// withoutPort leaves the brackets of an IPv6 address alone.
func withoutPort(host string) string {
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		return host[:i]
	}
	return host
}

// originForm is the path and query of a request target in absolute form (RFC
// 9112 section 3.2.2), and others as they are.
func originForm(target string) string {
	if len(target) == 0 || target[0] == '/' {
		return target
	}
	_, rest, ok := strings.Cut(target, "://")
	if !ok {
		return target
	}
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		return rest[i:]
	}
	return "/"
}

func appendOr(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	return append(b, s...)
}

func appendStatus(b []byte, status int) []byte {
	if status == 0 {
		return append(b, '-')
	}
	return strconv.AppendInt(b, int64(status), 10)
}

// appendSeconds has millisecond precision; -1 stays -1.
func appendSeconds(b []byte, micros int64) []byte {
	if micros < 0 {
		return append(b, "-1"...)
	}
	millis := (micros + int64(time.Millisecond/time.Microsecond)/2) / 1000
	b = strconv.AppendInt(b, millis/1000, 10)
	millis %= 1000
	return append(b, '.', byte('0'+millis/100), byte('0'+millis/10%10), byte('0'+millis%10))
}

func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	b = appendEscapedOr(b, s)
	return append(b, '"')
}

func appendEscapedOr(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	return appendEscaped(b, s)
}

// appendEscaped writes what would end the column or the line as \xHH (O: a
// quote in a User-Agent shows as \x22).
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	start := 0
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b = append(b, s[start:i]...)
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
			start = i + 1
		}
	}
	return append(b, s[start:]...)
}
