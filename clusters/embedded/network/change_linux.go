package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// open opens a namespace that exists.
func open(name string) (*space, error) {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	nl, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("open netlink in %s: %w", name, err)
	}
	return &space{ns: ns, nl: nl}, nil
}

// SetLink connects a host, or cuts it off at the router's end of its link. The
// host's end, its addresses and routes stay, so that it is whole again at once.
// Cut off it is silent: nobody needs ARP to send to it.
func SetLink(ctx context.Context, t Topology, host string, up bool) error {
	router, err := open(t.Router)
	if err != nil {
		return err
	}
	defer router.close()
	if up {
		if err := router.setUp(host); err != nil {
			return err
		}
		return awaitCarrier(ctx, []*space{router}, host)
	}
	link, err := router.nl.LinkByName(host)
	if err == nil {
		err = router.nl.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("set link of %s down: %w", host, err)
	}
	return nil
}

// LinkIsUp says whether SetLink has a host connected.
func LinkIsUp(t Topology, host string) (bool, error) {
	router, err := open(t.Router)
	if err != nil {
		return false, err
	}
	defer router.close()
	link, err := router.nl.LinkByName(host)
	if err != nil {
		return false, fmt.Errorf("find link of %s: %w", host, err)
	}
	return link.Attrs().Flags&net.FlagUp != 0, nil
}

// Replace gives a host a new network namespace in the place of its old one, as
// after a power cut: connection tracking and firewall rules are gone.
func Replace(ctx context.Context, t Topology, host string) error {
	router, err := open(t.Router)
	if err != nil {
		return err
	}
	defer router.close()
	for _, h := range t.Hosts {
		if h.Name != host {
			continue
		}
		if link, err := router.nl.LinkByName(host); err == nil {
			if err := router.nl.LinkDel(link); err != nil {
				return fmt.Errorf("remove link of %s: %w", host, err)
			}
		}
		// Its name is gone already if an earlier call was cut off here.
		if err := netns.DeleteNamed(h.Namespace); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove network namespace %s: %w", h.Namespace, err)
		}
		added, err := addHost(router, t, h)
		if err != nil {
			return fmt.Errorf("connect %s: %w", h.Namespace, err)
		}
		defer added.close()
		return awaitCarrier(ctx, []*space{router, added}, host, uplink)
	}
	return fmt.Errorf("no host %s", host)
}
