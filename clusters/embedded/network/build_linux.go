package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	bridge = "vpc0" // in the router
	uplink = "eth0" // in every host
)

// Build makes all namespaces, links and routes. What it has made when it fails
// stays; the caller removes it with the rest of the cluster.
func Build(ctx context.Context, t Topology) error {
	if err := prepareDir(); err != nil {
		return err
	}
	router, err := create(t.Router, map[string]string{
		"ipv4/ip_forward": "1",
		// Hosts of one subnet reach each other's pods through the router, as in
		// a cloud VPC; it must not tell them a shorter way.
		"ipv4/conf/all/send_redirects":     "0",
		"ipv4/conf/default/send_redirects": "0",
	})
	if err != nil {
		return err
	}
	defer router.close()
	if err := router.addBridge(t.Subnet); err != nil {
		return err
	}
	if err := router.addNeighbours(bridge, t, t.Subnet.Addr()); err != nil {
		return err
	}
	spaces := []*space{router}
	for _, h := range t.Hosts {
		if err := ctx.Err(); err != nil {
			return err
		}
		host, err := addHost(router, t, h)
		if err != nil {
			return fmt.Errorf("connect %s: %w", h.Namespace, err)
		}
		defer host.close()
		spaces = append(spaces, host)
	}
	return awaitCarrier(ctx, spaces)
}

// carrierLimit bounds awaitCarrier, which takes milliseconds.
const carrierLimit = 5 * time.Second

// awaitCarrier waits until the kernel has noticed that the links are connected.
// Until then it drops what is sent, and who sent it (an ARP request) tries
// again only after a second. Without names it waits for all links.
func awaitCarrier(ctx context.Context, spaces []*space, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, carrierLimit)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for _, s := range spaces {
		for {
			down, err := s.firstDown(names)
			if err != nil {
				return err
			}
			if down == "" {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("link %s does not come up: %w", down, ctx.Err())
			case <-tick.C:
			}
		}
	}
	return nil
}

// firstDown is the name of a link that is not up yet, or "".
func (s *space) firstDown(names []string) (string, error) {
	links, err := s.nl.LinkList()
	if err != nil {
		return "", fmt.Errorf("list links: %w", err)
	}
	for _, link := range links {
		a := link.Attrs()
		// Others (lo, tunnels that some kernels make everywhere) are not ours.
		ours := link.Type() == "veth" || link.Type() == "bridge"
		ours = ours && (len(names) == 0 || slices.Contains(names, a.Name))
		if ours && a.OperState != netlink.OperUp {
			return a.Name, nil
		}
	}
	return "", nil
}

// addHost makes a host and returns its namespace, open.
func addHost(router *space, t Topology, h Host) (_ *space, err error) {
	host, err := create(h.Namespace, h.Sysctls)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			host.close()
		}
	}()
	br, err := router.nl.LinkByName(bridge)
	if err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = h.Name, br.Attrs().Index
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: uplink, PeerNamespace: netlink.NsFd(host.ns),
		PeerHardwareAddr: hardwareAddress(h.Address),
	}
	if err := router.nl.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("add link: %w", err)
	}
	if err := router.nl.LinkSetUp(veth); err != nil {
		return nil, fmt.Errorf("set link up: %w", err)
	}
	if err := host.configure(t.Subnet, h); err != nil {
		return nil, err
	}
	if err := host.addNeighbours(uplink, t, h.Address); err != nil {
		return nil, err
	}
	if !h.Pods.IsValid() {
		return host, nil
	}
	if err := router.nl.RouteReplace(&netlink.Route{Dst: ipNet(h.Pods.Masked()), Gw: h.Address.AsSlice()}); err != nil {
		return nil, fmt.Errorf("route pods: %w", err)
	}
	return host, nil
}

// space is an open network namespace.
type space struct {
	ns netns.NsHandle
	nl *netlink.Handle
}

// create makes a named namespace with its loopback interface up.
func create(name string, sysctls map[string]string) (*space, error) {
	var s space
	err := onOwnThread(func() error {
		var err error
		if s.ns, err = netns.NewNamed(name); err != nil {
			return fmt.Errorf("create network namespace %s: %w", name, err)
		}
		// A new namespace copies what the machine has configured for itself;
		// strict reverse path filters would drop what comes through the router.
		for _, conf := range []string{"all", "default"} {
			if err := writeSysctl("ipv4/conf/"+conf+"/rp_filter", "0"); err != nil {
				return err
			}
		}
		for key, value := range sysctls {
			if err := writeSysctl(key, value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.nl, err = netlink.NewHandleAt(s.ns, unix.NETLINK_ROUTE); err != nil {
		s.ns.Close()
		return nil, fmt.Errorf("open netlink in %s: %w", name, err)
	}
	if err := s.setUp("lo"); err != nil {
		s.close()
		return nil, err
	}
	return &s, nil
}

func (s *space) close() {
	s.nl.Close()
	s.ns.Close()
}

func (s *space) setUp(name string) error {
	link, err := s.nl.LinkByName(name)
	if err == nil {
		err = s.nl.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func (s *space) addBridge(subnet netip.Prefix) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = bridge, hardwareAddress(subnet.Addr())
	br := &netlink.Bridge{LinkAttrs: attrs}
	if err := s.nl.LinkAdd(br); err != nil {
		return fmt.Errorf("add bridge: %w", err)
	}
	if err := s.nl.AddrAdd(br, &netlink.Addr{IPNet: ipNet(subnet)}); err != nil {
		return fmt.Errorf("add the router's address: %w", err)
	}
	return s.setUp(bridge)
}

// configure gives a host its addresses and routes.
func (s *space) configure(subnet netip.Prefix, h Host) error {
	link, err := s.nl.LinkByName(uplink)
	if err != nil {
		return err
	}
	for _, a := range append([]netip.Addr{h.Address}, h.More...) {
		if err := s.nl.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, subnet.Bits()))}); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
	}
	if err := s.setUp(uplink); err != nil {
		return err
	}
	if err := s.nl.RouteAdd(&netlink.Route{Gw: subnet.Addr().AsSlice()}); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	if !h.Pods.IsValid() {
		return nil
	}
	if err := s.nl.RouteAdd(deadRoute(h)); err != nil {
		return fmt.Errorf("route dead addresses (%s): %w", h.Dead, err)
	}
	return nil
}

// addNeighbours tells a host or the router where in the subnet the others are.
// In a cloud VPC, ARP is answered by the network itself whether a machine lives
// or not, so that one that does not is silent; here, senders would be told after
// three seconds that the host is unreachable.
func (s *space) addNeighbours(link string, t Topology, own netip.Addr) error {
	l, err := s.nl.LinkByName(link)
	if err != nil {
		return err
	}
	add := func(at, address netip.Addr) error {
		if at == own {
			return nil
		}
		err := s.nl.NeighSet(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: address.AsSlice(), HardwareAddr: hardwareAddress(at),
		})
		if err != nil {
			return fmt.Errorf("add neighbour %s: %w", address, err)
		}
		return nil
	}
	errs := []error{add(t.Subnet.Addr(), t.Subnet.Addr())}
	for _, h := range t.Hosts {
		for _, a := range append([]netip.Addr{h.Address}, h.More...) {
			errs = append(errs, add(h.Address, a))
		}
	}
	return errors.Join(errs...)
}

// hardwareAddress is the locally administered one of the host with an address.
func hardwareAddress(a netip.Addr) net.HardwareAddr {
	return append(net.HardwareAddr{0x02, 0}, a.AsSlice()...)
}

// deadRoute is what a node does with packets for its pods' addresses; the
// routes to living pods are longer and win.
func deadRoute(h Host) *netlink.Route {
	route := &netlink.Route{Dst: ipNet(h.Pods.Masked())}
	switch h.Dead {
	case Unreachable:
		route.Type = unix.RTN_UNREACHABLE
	case Reset:
		// As if the node itself had the address: its TCP, with no such
		// connection and no listener on the port, answers RST.
		route.Type, route.Table = unix.RTN_LOCAL, unix.RT_TABLE_MAIN
		route.LinkIndex, route.Scope = 1, netlink.SCOPE_HOST // 1 is always lo
	default:
		route.Type = unix.RTN_BLACKHOLE
	}
	return route
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// writeSysctl sets a value below /proc/sys/net for the namespace of the
// calling thread.
func writeSysctl(key, value string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0); err != nil {
		return fmt.Errorf("set net/%s: %w", key, err)
	}
	return nil
}

// onOwnThread runs f on a thread of its own that ends afterwards, so that f may
// leave it in another network namespace.
func onOwnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- f()
	}()
	return <-result
}

// prepareDir makes Dir what "ip netns add" makes of it: a shared mount of its
// own. Otherwise the first "ip netns add" of somebody else would cover our
// mounts by copies of them, and then nobody could remove the files.
func prepareDir() error {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount yet
		if err = unix.Mount(Dir, Dir, "", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", Dir, "", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("prepare %s: %w", Dir, err)
	}
	return nil
}
