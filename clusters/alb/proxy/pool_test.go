package proxy

import (
	"testing"

	"lameduck/clusters/alb/accesslog"
	"lameduck/clusters/alb/scripted"
)

// two makes two idle connections, the first one first.
func two(t *testing.T, order PoolOrder) (p *Pool, target *scripted.Target, first, second *targetConn) {
	t.Helper()
	target = startTarget(t, scripted.Echo)
	f := frontWith(t, []string{target.Address()}, func(w *world) { w.pool.Order = order })
	p = f.pool()
	for _, c := range []**targetConn{&first, &second} {
		var err error
		if *c, err = p.open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.put(first)
	p.put(second)
	return p, target, first, second
}

func wantSize(t *testing.T, p *Pool, idle, busy int) {
	t.Helper()
	if i, b := p.Size(); i != idle || b != busy {
		t.Errorf("pool has %d idle and %d busy connections, want %d and %d", i, b, idle, busy)
	}
}

func TestPoolOrder(t *testing.T) {
	t.Parallel()
	for _, order := range []PoolOrder{"", PoolLIFO, PoolFIFO} {
		p, _, want, other := two(t, order)
		if order != PoolFIFO {
			want, other = other, want
		}
		c, err := p.take()
		if err != nil || c != want {
			t.Errorf("order %q: took the other connection, %v", order, err)
		}
		wantSize(t, p, 1, 1)
		if c, _ := p.take(); c != other {
			t.Errorf("order %q: second connection is not the other", order)
		}
		if c, err := p.take(); c != nil || err != nil {
			t.Errorf("order %q: third connection %v, %v; want none", order, c, err)
		}
	}
}

func TestPoolDrain(t *testing.T) {
	t.Parallel()
	p, _, _, _ := two(t, PoolLIFO)
	busy, _ := p.take()
	p.Drain(false)
	wantSize(t, p, 1, 1)
	p.Drain(true)
	wantSize(t, p, 0, 1)
	p.put(busy)
	wantSize(t, p, 0, 0)
	p.Resume()
	c, err := p.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.put(c)
	wantSize(t, p, 1, 0)
}

func TestPoolCloseEndsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for cause, want := range map[Cause]struct {
		status int
		name   string
	}{CauseDeregistered: {502, accesslog.ErrorDeregistered}, CauseStopped: {0, accesslog.ErrorStopped}} {
		arrived := make(chan struct{})
		target := startTarget(t, func(x *scripted.Exchange) {
			x.Request()
			close(arrived)
			x.Request()
		})
		f := frontWith(t, []string{target.Address()}, nil)
		go func() {
			<-arrived
			f.pool().Close(cause)
		}()
		resp, err := f.client.Get(f.url)
		if err == nil {
			resp.Body.Close()
		}
		if got := resp != nil; got != (want.status != 0) || got && resp.StatusCode != want.status {
			t.Errorf("%s: client got %v, %v; want %d", want.name, resp, err, want.status)
		}
		wantLine(t, f.line(), want.status, 0, accesslog.PhaseWait, want.name)
		wantSize(t, f.pool(), 0, 0)
		// Nothing can be got any more.
		if a, err := f.pool().take(); a != nil || err != error(cause.err) {
			t.Errorf("%s: closed pool gave %v, %v", want.name, a, err)
		}
	}
}
