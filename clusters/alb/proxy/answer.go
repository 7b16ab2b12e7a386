package proxy

import (
	"net/http"
	"strconv"
	"time"
)

// answer is the load balancer's own.
func (x *exchange) answer(a Answer) {
	x.line.Status, x.line.Error, x.line.RedirectURL = a.Status, a.Error, a.Location
	h := x.w.Header()
	// Seen in front of every ALB; tools tell its errors from the target's by it.
	h["Server"] = []string{"awselb/2.0"}
	if x.closing {
		h["Connection"] = closeHeader
	}
	if a.Location != "" {
		h["Location"] = []string{a.Location}
	}
	page := a.Body
	if !a.Fixed {
		text := http.StatusText(a.Status)
		if text == "" {
			text = "Load Balancer Error"
		}
		title := strconv.Itoa(a.Status) + " " + text
		page = "<html><head><title>" + title + "</title></head><body><h1>" + title + "</h1></body></html>\r\n"
		h["Content-Type"] = []string{"text/html"}
	} else if a.ContentType != "" {
		h["Content-Type"] = []string{a.ContentType}
	}
	h["Content-Length"] = []string{strconv.Itoa(len(page))}
	x.line.SentTotal = headSize(a.Status, h)
	x.w.WriteHeader(a.Status)
	// A client that has gone away is not told; http.Server notices.
	n, _ := x.w.Write([]byte(page))
	x.line.Sent = int64(n)
}

// headSize is the size of an answer's head in HTTP/1.1, with the Date that
// http.Server adds.
func headSize(status int, h http.Header) int64 {
	size := len("HTTP/1.1 200 ") + len(http.StatusText(status)) + len("\r\n\r\n") + len("Date: ") + len(http.TimeFormat) + len("\r\n")
	for name, values := range h {
		for _, v := range values {
			size += len(name) + len(": ") + len(v) + len("\r\n")
		}
	}
	return int64(size)
}

// The exchange is the Request that the Router looks at.

// Method implements Request.
func (x *exchange) Method() string { return x.r.Method }

// Host implements Request.
func (x *exchange) Host() string { return x.r.Host }

// Target implements Request.
func (x *exchange) Target() string { return x.r.RequestURI }

// Scheme implements Request.
func (x *exchange) Scheme() string { return x.l.scheme }

// Port implements Request.
func (x *exchange) Port() string { return x.l.port }

// ClientIP implements Request.
func (x *exchange) ClientIP() string { return x.client.ip }

// Header implements Request.
func (x *exchange) Header(name string) []string { return x.r.Header[name] }

// Time implements Request.
func (x *exchange) Time() time.Time { return x.line.Time }
