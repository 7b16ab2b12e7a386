package machine

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopLimit bounds the orderly stop of all components. What has not ended by
// then is killed by the kernel when PID 1 exits.
const stopLimit = 10 * time.Second

// Run is the supervisor of one machine; it is what Start starts. It returns
// when ctx ends and all components are stopped, in the reverse of the order in
// which they are listed.
func Run(ctx context.Context, specPath string) error {
	if os.Getpid() != 1 {
		return errors.New("embedded-host is started by lameduck itself; use: lameduck cluster up")
	}
	spec, err := readSpec(specPath)
	if err != nil {
		return err
	}
	for _, dir := range spec.Cgroups {
		// 0 is the writer itself, so no PID has to be translated.
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return fmt.Errorf("enter cgroup: %w", err)
		}
	}
	realProc, err := isolate(spec)
	if err != nil {
		return err
	}
	s := &supervisor{spec: spec, realProc: realProc, running: make(map[int]*child)}
	return s.run(ctx)
}

type supervisor struct {
	spec     Spec
	realProc *os.File

	mu       sync.Mutex
	status   Status
	running  map[int]*child // by PID inside the machine
	children []*child       // by index in status.Components; nil: not started
	holds    holds

	restarting sync.Mutex // held while a component is started anew
}

type child struct {
	index int // in status.Components
	done  chan struct{}
}

func (s *supervisor) run(ctx context.Context) error {
	own, err := os.Readlink(filepath.Join(s.procPath(), "self"))
	if err != nil {
		return fmt.Errorf("find own PID: %w", err)
	}
	s.children = make([]*child, len(s.spec.Components))
	s.status.Supervisor = Process{Name: "supervisor", Log: LogFile(s.spec.Dir, "supervisor"), Started: s.startTime(own)}
	fmt.Sscan(own, &s.status.Supervisor.PID)
	for _, c := range s.spec.Components {
		s.status.Components = append(s.status.Components, Process{Name: c.Name, Log: LogFile(s.spec.Dir, c.Name)})
	}
	if err := writeJSON(statusFile(s.spec.Dir), s.status); err != nil {
		return err
	}
	if err := forward(ctx, s.spec.Forwards); err != nil {
		return err
	}
	if err := s.control(ctx); err != nil {
		return err
	}
	conditions := newProbes(ctx)
	var starting sync.WaitGroup
	for i := range s.spec.Components {
		starting.Go(func() {
			if err := s.startWhenReady(conditions, i); err != nil {
				s.ended(i, err.Error())
				return
			}
			go s.awaitReady(conditions, i)
		})
	}
	go s.reap()
	<-ctx.Done()
	starting.Wait()
	s.stop()
	return nil
}

// startWhenReady starts a component once its conditions hold.
func (s *supervisor) startWhenReady(conditions *probes, i int) error {
	c := s.spec.Components[i]
	for _, p := range c.After {
		if err := conditions.wait(p); err != nil {
			return fmt.Errorf("not started: %w", err)
		}
	}
	out, err := os.OpenFile(LogFile(s.spec.Dir, c.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	pidfd := -1
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Args[0] = c.Name
	cmd.Dir = "/"
	cmd.Env = append(append([]string{MarkerEnv + "=" + s.spec.Cluster}, s.spec.Env...), c.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, PidFD: &pidfd}

	// The lock keeps the reaper from looking for the child before it is listed.
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	p := &s.status.Components[i]
	p.PID, p.Started = s.translate(pidfd)
	p.Ready, p.Exit = false, ""
	ch := &child{index: i, done: make(chan struct{})}
	s.running[cmd.Process.Pid], s.children[i] = ch, ch
	return s.write()
}

// awaitReady notes when a component is ready. One that never is shows in the
// log, and by its absence from the status.
func (s *supervisor) awaitReady(conditions *probes, i int) error {
	c := s.spec.Components[i]
	if c.Ready != nil {
		if err := conditions.wait(*c.Ready); err != nil {
			log.Printf("%s is not ready: %v", c.Name, err)
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Components[i].Ready = true
	return s.write()
}

// reap collects every process that ends, those that were orphaned too: that is
// the duty of PID 1. It never returns while the machine lives.
func (s *supervisor) reap() {
	sigchld := notifyChild()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no child at the moment
			<-sigchld
		default:
			s.mu.Lock()
			ch := s.running[pid]
			delete(s.running, pid)
			s.mu.Unlock()
			if ch != nil {
				s.ended(ch.index, describe(ws))
				close(ch.done)
			}
		}
	}
}

func describe(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by " + unix.SignalName(ws.Signal())
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

func (s *supervisor) ended(i int, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.status.Components[i]
	p.Exit = how
	log.Printf("%s: %s", p.Name, how)
	if err := s.write(); err != nil {
		log.Printf("write status: %v", err)
	}
}

func (s *supervisor) write() error { return writeJSON(statusFile(s.spec.Dir), s.status) }

func (s *supervisor) stop() {
	limit := time.After(stopLimit)
	s.mu.Lock()
	children := slices.Clone(s.children)
	s.mu.Unlock()
	for _, ch := range slices.Backward(children) {
		if ch == nil {
			continue
		}
		s.terminate(ch)
		select {
		case <-ch.done:
		case <-limit:
			log.Printf("stopping took longer than %s; the rest is killed", stopLimit)
			return
		}
	}
}

// terminate asks a component to end, one that is paused too.
func (s *supervisor) terminate(ch *child) {
	s.signal(ch, syscall.SIGTERM)
	s.signal(ch, syscall.SIGCONT)
}

// signal sends a signal to a component and says whether it runs.
func (s *supervisor) signal(ch *child, sig syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, c := range s.running {
		if c == ch {
			return syscall.Kill(pid, sig) == nil
		}
	}
	return false
}

func (s *supervisor) procPath() string { return fmt.Sprintf("/proc/self/fd/%d", s.realProc.Fd()) }

// translate returns PID and start time of a child as the real machine sees
// them, and closes the descriptor. Without pidfds (kernels before 5.4) the PID
// stays unknown, which costs no more than a column of the status.
func (s *supervisor) translate(pidfd int) (pid int, started string) {
	if pidfd < 0 {
		return 0, ""
	}
	defer unix.Close(pidfd)
	b, err := os.ReadFile(filepath.Join(s.procPath(), "self/fdinfo", fmt.Sprint(pidfd)))
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "Pid:"); ok {
			fmt.Sscan(value, &pid)
		}
	}
	return pid, s.startTime(fmt.Sprint(pid))
}

func (s *supervisor) startTime(pid string) string {
	b, err := os.ReadFile(filepath.Join(s.procPath(), pid, "stat"))
	if err != nil {
		return ""
	}
	return parseStartTime(string(b))
}

// forward starts passing on connections from the inherited listeners.
func forward(ctx context.Context, forwards []Forward) error {
	for i, f := range forwards {
		file := os.NewFile(uintptr(3+i), f.Name)
		l, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return fmt.Errorf("take over listener of %s: %w", f.Name, err)
		}
		go accept(ctx, l, f)
	}
	return nil
}
