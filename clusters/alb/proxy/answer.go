package proxy

import (
	"net/http"
	"strconv"

	"lameduck/clusters/alb/accesslog"
)

// answer is the load balancer's own.
func (x *exchange) answer(a *Answer) {
	if a.Fixed || a.Location != "" {
		x.line.RedirectURL = a.Location
		x.sendOwn(a.Status, a.Error, a.ContentType, a.Body, a.Location)
		return
	}
	if a.Status == 0 {
		a.Status = http.StatusInternalServerError // a router that knows neither
	}
	if a.Body != "" {
		x.sendOwn(a.Status, a.Error, a.ContentType, a.Body, "")
		return
	}
	x.page(a.Status, a.Error)
}

// refuse answers a request that is not acceptable.
func (x *exchange) refuse(status int) {
	x.last = x.last || !endKnown(status)
	name := accesslog.ErrorRefused
	if status == http.StatusRequestTimeout {
		name = accesslog.ErrorClientIdle
	}
	x.page(status, name)
}

// page answers with the load balancer's usual page.
func (x *exchange) page(status int, reason string) {
	text := statusText(status)
	title := strconv.Itoa(status) + " " + text
	x.sendOwn(status, reason, "text/html",
		"<html>\r\n<head><title>"+title+"</title></head>\r\n<body>\r\n<center><h1>"+title+"</h1></center>\r\n</body>\r\n</html>\r\n", "")
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "Load Balancer Error"
}

// sendOwn sends an answer whose body is at hand.
func (x *exchange) sendOwn(status int, reason, contentType, body, location string) {
	x.line.Status, x.line.Error = status, reason
	x.last = !x.s.skipBody() || x.last || x.l.closing.Load()
	// Seen in front of every ALB; tools tell its errors from the target's by it.
	fields := []field{{name: "Server", value: "awselb/2.0"}}
	if contentType != "" {
		fields = append(fields, field{name: "Content-Type", value: contentType, kind: kindContentType})
	}
	if location != "" {
		fields = append(fields, field{name: "Location", value: location})
	}
	hasBody := body != "" && x.req.method != http.MethodHead && status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
	x.reply = answerHead{status: status, reason: statusText(status), fields: fields, length: int64(len(body)), hasBody: hasBody, last: x.last}
	x.s.writeHead(&x.reply)
	if hasBody {
		if err := x.s.write([]byte(body)); err == nil {
			x.line.Sent = int64(len(body))
		}
	}
	// A client that has gone away is not told.
	if err := x.s.finish(); err != nil {
		x.cut = true
	}
}
