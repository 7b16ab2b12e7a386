package controller

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"lameduck/clusters/alb/elb"
)

// attribute is one key of an attribute list and what AWS accepts for it.
type attribute struct {
	// low..high for a number; zero is allowed besides if orZero is set.
	low, high int
	orZero    bool
	values    []string // the accepted words, unless it is a number
	free      bool     // any text
	// acted says that the load balancer does what it asks for. Any other key
	// may be set, and a Warning Event says that nothing comes of it.
	acted bool
}

var boolean = []string{"true", "false"}

// The attributes that the ELBv2 API knows (API reference,
// LoadBalancerAttribute and TargetGroupAttribute); AWS refuses others.
var (
	loadBalancerAttributes = map[string]attribute{
		"idle_timeout.timeout_seconds":                             {low: 1, high: 4000, acted: true},
		"client_keep_alive.seconds":                                {low: 60, high: 604800, acted: true},
		"access_logs.s3.enabled":                                   {values: boolean},
		"access_logs.s3.bucket":                                    {free: true},
		"access_logs.s3.prefix":                                    {free: true},
		"connection_logs.s3.enabled":                               {values: boolean},
		"connection_logs.s3.bucket":                                {free: true},
		"connection_logs.s3.prefix":                                {free: true},
		"deletion_protection.enabled":                              {values: boolean},
		"ipv6.deny_all_igw_traffic":                                {values: boolean},
		"load_balancing.cross_zone.enabled":                        {values: boolean},
		"routing.http.desync_mitigation_mode":                      {values: []string{"monitor", "defensive", "strictest"}},
		"routing.http.drop_invalid_header_fields.enabled":          {values: boolean},
		"routing.http.preserve_host_header.enabled":                {values: boolean},
		"routing.http.x_amzn_tls_version_and_cipher_suite.enabled": {values: boolean},
		"routing.http.xff_client_port.enabled":                     {values: boolean},
		"routing.http.xff_header_processing.mode":                  {values: []string{"append", "preserve", "remove"}},
		"routing.http2.enabled":                                    {values: boolean},
		"waf.fail_open.enabled":                                    {values: boolean},
		"zonal_shift.config.enabled":                               {values: boolean},
	}
	targetGroupAttributes = map[string]attribute{
		"deregistration_delay.timeout_seconds":                                           {low: 0, high: 3600, acted: true},
		"slow_start.duration_seconds":                                                    {low: 30, high: 900, orZero: true, acted: true},
		"load_balancing.algorithm.type":                                                  {values: []string{"round_robin", "least_outstanding_requests", "weighted_random"}, acted: true},
		"load_balancing.algorithm.anomaly_mitigation":                                    {values: []string{"on", "off"}, acted: true},
		"load_balancing.cross_zone.enabled":                                              {values: []string{"true", "false", "use_load_balancer_configuration"}},
		"stickiness.enabled":                                                             {values: boolean, acted: true},
		"stickiness.type":                                                                {values: []string{"lb_cookie", "app_cookie"}, acted: true},
		"stickiness.lb_cookie.duration_seconds":                                          {low: 1, high: 604800, acted: true},
		"stickiness.app_cookie.duration_seconds":                                         {low: 1, high: 604800, acted: true},
		"stickiness.app_cookie.cookie_name":                                              {free: true, acted: true},
		"target_group_health.dns_failover.minimum_healthy_targets.count":                 {free: true},
		"target_group_health.dns_failover.minimum_healthy_targets.percentage":            {free: true},
		"target_group_health.unhealthy_state_routing.minimum_healthy_targets.count":      {free: true},
		"target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage": {free: true},
	}
	// asIs are the values that ask for what the load balancer does anyway.
	asIs = map[string]string{
		"access_logs.s3.enabled":                                                    "false",
		"connection_logs.s3.enabled":                                                "false",
		"deletion_protection.enabled":                                               "false",
		"routing.http.xff_client_port.enabled":                                      "false",
		"routing.http.xff_header_processing.mode":                                   "append",
		"load_balancing.cross_zone.enabled":                                         "true", // every node has every target
		"routing.http2.enabled":                                                     "true",
		"target_group_health.dns_failover.minimum_healthy_targets.count":            "1",
		"target_group_health.unhealthy_state_routing.minimum_healthy_targets.count": "1",
	}
)

// attributes reads an annotation like "a=1,b=2" against what is accepted. The
// keys that change nothing are returned, sorted.
func (a annotations) attributes(name string, accepted map[string]attribute) (values map[string]string, ignored []string, err error) {
	list, ok := a[name]
	if !ok || strings.TrimSpace(list) == "" {
		return nil, nil, nil
	}
	values = make(map[string]string)
	var errs []error
	for _, item := range strings.Split(list, ",") {
		key, value, ok := strings.Cut(item, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		attr, exists := accepted[key]
		if !ok || !exists {
			errs = append(errs, badValue(annotationPrefix+name, strings.TrimSpace(item), "key=value with an attribute that AWS knows"))
			continue
		}
		if want := attr.refuses(value); want != "" {
			errs = append(errs, badValue(annotationPrefix+name, key+"="+value, want))
			continue
		}
		values[key] = value
		if !attr.acted && asIs[key] != value {
			ignored = append(ignored, key)
		}
	}
	slices.Sort(ignored)
	return values, ignored, errors.Join(errs...)
}

// Defaults of attributes (user guide: Load balancer attributes, Target group
// attributes).
const (
	defaultIdleTimeout         = 60 * time.Second
	defaultClientKeepAlive     = 3600 * time.Second
	defaultDeregistrationDelay = 300 * time.Second
	defaultStickiness          = 86400 * time.Second
)

// seconds reads an attribute whose range has been checked.
func seconds(attrs map[string]string, key string, byDefault time.Duration) time.Duration {
	n, err := strconv.Atoi(attrs[key])
	if err != nil {
		return byDefault // not set
	}
	return time.Duration(n) * time.Second
}

// apply sets a group's attributes.
func (t targetGroupValues) apply(g *elb.TargetGroup) error {
	const name = annotationPrefix + "target-group-attributes"
	var errs []error
	g.DeregistrationDelay = seconds(t, "deregistration_delay.timeout_seconds", defaultDeregistrationDelay)
	g.SlowStart = seconds(t, "slow_start.duration_seconds", 0)
	g.Algorithm = elb.RoundRobin
	if v, ok := t["load_balancing.algorithm.type"]; ok {
		g.Algorithm = elb.Algorithm(v)
	}
	if g.SlowStart > 0 && g.Algorithm != elb.RoundRobin { // user guide, Slow start mode
		errs = append(errs, badValue(name, "slow_start.duration_seconds="+t["slow_start.duration_seconds"], "0, or load_balancing.algorithm.type=round_robin with it"))
	}
	g.AnomalyMitigation = t["load_balancing.algorithm.anomaly_mitigation"] == "on"
	if g.AnomalyMitigation && g.Algorithm != elb.WeightedRandom { // user guide, Automatic Target Weights
		errs = append(errs, badValue(name, "load_balancing.algorithm.anomaly_mitigation=on", "off, or load_balancing.algorithm.type=weighted_random with it"))
	}
	if t["stickiness.enabled"] != "true" {
		return errors.Join(errs...)
	}
	g.Stickiness.Duration = seconds(t, "stickiness.lb_cookie.duration_seconds", defaultStickiness)
	if t["stickiness.type"] == "app_cookie" {
		g.Stickiness.Duration = seconds(t, "stickiness.app_cookie.duration_seconds", defaultStickiness)
		g.Stickiness.AppCookie = t["stickiness.app_cookie.cookie_name"]
		if c := g.Stickiness.AppCookie; c == "" || strings.HasPrefix(c, "AWSALB") { // user guide, Application-based stickiness
			errs = append(errs, badValue(name, "stickiness.app_cookie.cookie_name="+c, "the application's cookie, not one of the load balancer's (AWSALB...)"))
		}
	}
	return errors.Join(errs...)
}

// targetGroupValues are checked values of target-group-attributes.
type targetGroupValues map[string]string

// refuses says what is wanted instead of value, or "".
func (t attribute) refuses(value string) string {
	if t.free {
		return ""
	}
	if t.values != nil {
		if slices.Contains(t.values, value) {
			return ""
		}
		return "one of " + strings.Join(t.values, ", ")
	}
	n, err := strconv.Atoi(value)
	if err == nil && (n >= t.low && n <= t.high || n == 0 && t.orZero) {
		return ""
	}
	if t.orZero {
		return fmt.Sprintf("0 or %d..%d", t.low, t.high)
	}
	return fmt.Sprintf("%d..%d", t.low, t.high)
}
