package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"syscall"
	"time"

	"lameduck/clusters/embedded/network"
)

// Ask asks the supervisor of the machine in a network namespace for something
// and returns when it is done.
func Ask(ctx context.Context, netns string, r Request) error {
	conn, err := request(ctx, netns, r)
	if err != nil {
		return err
	}
	return conn.Close()
}

// HoldFor asks for Hold. The component runs again when end returns.
func HoldFor(ctx context.Context, netns, component string, share float64) (end func(context.Context) error, err error) {
	conn, err := request(ctx, netns, Request{Do: Hold, Component: component, Share: share})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer conn.Close()
		stop := cutOff(ctx, conn)
		defer stop()
		// Its end of the connection closes when the component runs, or with the
		// supervisor. That this one is closed already says the same.
		if err := conn.CloseWrite(); err != nil {
			return nil
		}
		io.Copy(io.Discard, conn)
		return context.Cause(ctx)
	}, nil
}

// request returns the connection when the supervisor has answered.
func request(ctx context.Context, netns string, r Request) (*net.UnixConn, error) {
	var conn *net.UnixConn
	err := network.Inside(netns, func() (err error) {
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: controlSocket, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	stop := cutOff(ctx, conn)
	defer stop()
	var a answer
	err = json.NewEncoder(conn).Encode(r)
	if err == nil {
		err = json.NewDecoder(conn).Decode(&a)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case a.Error != "":
		err = errors.New(a.Error)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s %s: %w", r.Do, r.Component, err)
	}
	return conn, nil
}

// cutOff ends reads and writes of a connection when ctx ends.
func cutOff(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
}

// control takes requests until ctx ends.
func (s *supervisor) control(ctx context.Context) error {
	l, err := net.Listen("unix", controlSocket)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				log.Printf("control: %v", err)
				time.Sleep(100 * time.Millisecond) // out of file descriptors, usually: refuse to spin
				continue
			}
			go s.serve(ctx, conn)
		}
	}()
	return nil
}

// serve does what is asked for on one connection.
func (s *supervisor) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	var r Request
	if err := json.NewDecoder(conn).Decode(&r); err != nil {
		log.Printf("control: %v", err)
		return
	}
	var err error
	switch r.Do {
	case Restart:
		err = s.restart(ctx, r.Component)
	case Hold:
		var h *held
		if h, err = s.hold(ctx, r.Component, r.Share); err == nil {
			json.NewEncoder(conn).Encode(answer{})
			go func() {
				io.Copy(io.Discard, conn) // nothing comes but the end
				h.cancel()
			}()
			<-h.done
			return
		}
	case Release:
		s.release()
	default:
		err = fmt.Errorf("%q: want %s, %s or %s", r.Do, Restart, Hold, Release)
	}
	var a answer
	if err != nil {
		a.Error = err.Error()
	}
	json.NewEncoder(conn).Encode(a)
}

func (s *supervisor) index(component string) (int, error) {
	i := slices.IndexFunc(s.spec.Components, func(c Component) bool { return c.Name == component })
	if i < 0 {
		return 0, fmt.Errorf("no component %q", component)
	}
	return i, nil
}

// child is the process of a component, nil if it was not started.
func (s *supervisor) child(i int) *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.children[i]
}

func (s *supervisor) restart(ctx context.Context, component string) error {
	i, err := s.index(component)
	if err != nil {
		return err
	}
	s.restarting.Lock()
	defer s.restarting.Unlock()
	if ch := s.child(i); ch != nil {
		s.terminate(ch)
		select {
		case <-ch.done:
		case <-time.After(stopLimit):
			s.signal(ch, syscall.SIGKILL)
			<-ch.done
		}
	}
	conditions := newProbes(ctx)
	if err := s.startWhenReady(conditions, i); err != nil {
		s.ended(i, err.Error())
		return err
	}
	return s.awaitReady(conditions, i)
}
