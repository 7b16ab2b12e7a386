//go:build e2e

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// in runs f on a thread in a named network namespace.
func in(t *testing.T, name string, f func() error) error {
	t.Helper()
	return onOwnThread(func() error {
		ns, err := netns.GetFromName(name)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			return err
		}
		return f()
	})
}

func TestE2EDeadAddresses(t *testing.T) {
	_, err := os.Stat(Dir)
	before := links(t)
	fresh := errors.Is(err, os.ErrNotExist)
	for _, c := range []struct {
		dead Dead
		want func(error) bool
	}{
		{Drop, os.IsTimeout},
		{Unreachable, func(err error) bool { return errors.Is(err, unix.EHOSTUNREACH) }},
		{Reset, func(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }},
	} {
		t.Run(string(c.dead), func(t *testing.T) {
			name := func(host string) string { return fmt.Sprintf("lameduck-e2e-net-%s", host) }
			node := Host{
				Name: "n1", Namespace: name("n1"), Address: netip.MustParseAddr("198.18.0.11"),
				Pods: netip.MustParsePrefix("198.19.1.0/24"), Dead: c.dead, Sysctls: map[string]string{"ipv4/ip_forward": "1"},
			}
			client := Host{Name: "client", Namespace: name("client"), Address: netip.MustParseAddr("198.18.0.6")}
			t.Cleanup(func() {
				for _, host := range []string{"vpc", "n1", "client"} {
					netns.DeleteNamed(name(host))
				}
				if fresh { // made by Build
					unix.Unmount(Dir, 0)
					os.Remove(Dir)
				}
			})
			err := Build(t.Context(), Topology{
				Router: name("vpc"), Subnet: netip.MustParsePrefix("198.18.0.1/24"), Hosts: []Host{node, client},
			})
			if err != nil {
				t.Fatal(err)
			}
			// A living pod, for once on the node itself.
			err = in(t, node.Namespace, func() error {
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				addr, err := netlink.ParseAddr("198.19.1.2/32")
				if err != nil {
					return err
				}
				if err := netlink.AddrAdd(lo, addr); err != nil {
					return err
				}
				l, err := net.Listen("tcp4", "198.19.1.2:8080")
				if err == nil {
					t.Cleanup(func() { l.Close() })
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			dial := func(addr string) error {
				return in(t, client.Namespace, func() error {
					conn, err := net.DialTimeout("tcp4", addr, 500*time.Millisecond)
					if err == nil {
						return conn.Close()
					}
					return err.(*net.OpError).Err // os.IsTimeout looks no deeper
				})
			}
			if err := dial("198.19.1.2:8080"); err != nil {
				t.Errorf("living pod: %v", err)
			}
			if err := dial("198.19.1.3:8080"); !c.want(err) {
				t.Errorf("dead pod: %v", err)
			}
			if got := links(t); got != before {
				t.Errorf("interfaces of the machine itself: %s; before: %s", got, before)
			}
		})
	}
}

// links are the names of the interfaces of the machine itself.
func links(t *testing.T) string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names string
	for _, link := range all {
		names += link.Name + " "
	}
	return names
}

func TestE2EProbe(t *testing.T) {
	if err := Probe(); err != nil {
		t.Error(err)
	}
}
