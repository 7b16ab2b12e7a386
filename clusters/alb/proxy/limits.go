package proxy

// Limits that no attribute changes (AWS user guide for Application Load
// Balancers: Quotas, Troubleshooting).
const (
	maxRequestLine     = 16 << 10
	maxRequestField    = 16 << 10
	maxRequestHead     = 64 << 10
	maxResponseHead    = 32 << 10
	maxForwardedFor    = 30
	maxInterimAnswers  = 8 // 1xx before the final one; our bound, AWS names none
	maxTrailerBytes    = maxResponseHead
	serverMaxHeadBytes = 4 * maxRequestHead // http.Server's own limit answers 431, which an ALB never does
)
