// Command own-app serves one page on port 3000, and ends what it has begun when
// it is asked to stop. It stands for an application of your own.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	http.HandleFunc("GET /catalogue", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(20 * time.Millisecond) // as if it had something to do
		w.Write([]byte("<h1>Catalogue</h1>\n"))
	})
	http.HandleFunc("GET /up", func(http.ResponseWriter, *http.Request) {})
	// Longer than the load balancer's idle timeout of 60 s, which must be the one
	// that closes a connection.
	server := &http.Server{Addr: ":3000", IdleTimeout: 75 * time.Second}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		asked, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		<-asked.Done()
		server.Shutdown(context.Background())
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-stopped
}
