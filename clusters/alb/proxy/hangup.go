package proxy

// hangupWatcher is told by Hangups that the other end has closed the
// connection, possibly after forget.
type hangupWatcher interface{ hungUp() }
