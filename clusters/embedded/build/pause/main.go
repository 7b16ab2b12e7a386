// Command pause holds the namespaces of a pod open for as long as the pod lives.
//
// It is the only process of the pod's sandbox container, so it is process 1 there: it has to end when asked, since the
// kernel gives process 1 no default action for a signal, and has to wait for the orphans it is given when the pod's
// containers share its process namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap waits for every child that has ended. Signals of one kind are merged while one is pending, so one SIGCHLD may
// stand for many children.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if pid <= 0 || err != nil {
			return
		}
	}
}
