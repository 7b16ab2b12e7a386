package controller

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// endpoint is an address of an EndpointSlice, with its pod.
type endpoint struct {
	addr netip.AddrPort
	pod  string // "" if it is none
}

// podEndpoints are the addresses that IP mode registers for a Service's port:
// those that are ready, and those of pods that would be if only their readiness
// gate were fulfilled, which in turn waits for the registration. Terminating
// pods are neither, so they are deregistered when their deletion begins, in
// parallel with their preStop hooks (S: pkg/backend/endpoint_resolver.go).
func podEndpoints(slices []*discoveryv1.EndpointSlice, port corev1.ServicePort, waiting func(pod string) bool) []endpoint {
	seen := make(map[netip.AddrPort]bool)
	var all []endpoint
	for _, s := range slices {
		if s.AddressType != discoveryv1.AddressTypeIPv4 {
			continue
		}
		number, ok := slicePort(s, port)
		if !ok {
			continue
		}
		for _, e := range s.Endpoints {
			pod := ""
			if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				pod = e.TargetRef.Name
			}
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
			if !ready && (terminating || pod == "" || !waiting(pod)) {
				continue
			}
			for _, a := range e.Addresses {
				ip, err := netip.ParseAddr(a)
				if err != nil {
					continue
				}
				if addr := netip.AddrPortFrom(ip, number); !seen[addr] {
					seen[addr] = true
					all = append(all, endpoint{addr, pod})
				}
			}
		}
	}
	return all
}

// slicePort is the port that a Service's port has in a slice: the one of the
// same name.
func slicePort(s *discoveryv1.EndpointSlice, port corev1.ServicePort) (uint16, bool) {
	for _, p := range s.Ports {
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		if name == port.Name && p.Port != nil {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}
