package conformance

import "slices"

// Grade is how sure a fact is.
type Grade string

// The grades.
const (
	Documented Grade = "D" // by AWS, or an RFC
	Source     Grade = "S" // read in the AWS Load Balancer Controller's source
	Observed   Grade = "O" // and reported by users
	Inferred   Grade = "I"
	Unknown    Grade = "U" // a setting
)

// Where facts come from.
const (
	guideTroubleshooting = "ALB guide, Troubleshooting"
	guideAttributes      = "ALB guide, Load balancer attributes"
	guideTargetGroups    = "ALB guide, Target groups"
	guideHealthChecks    = "ALB guide, Target group health checks"
	guideSticky          = "ALB guide, Sticky sessions"
	guideRules           = "ALB guide, Listener rules"
	guideListeners       = "ALB guide, Listeners"
	guideIntroduction    = "ALB guide, What is an ALB"
	guideHeaders         = "ALB guide, HTTP headers"
	guideTracing         = "ALB guide, Request tracing"
	guideAccessLogs      = "ALB guide, Access logs"
	guideCloudWatch      = "ALB guide, CloudWatch metrics"
	guideQuotas          = "ALB guide, Quotas"
	apiReference         = "ELBv2 API reference"
	controllerSource     = "aws-load-balancer-controller v3.5"
	controllerIssues     = "aws-load-balancer-controller, issues"
	rfcHTTP              = "RFC 9110, 9112"
	rfcWebSocket         = "RFC 6455"
	notPublished         = "not published"
)

// Fact is one thing that the stand-in does as an ALB, or its controller, does.
type Fact struct {
	// ID names the fact for good: <section>-<words>.
	ID string
	// Section of the project's list of facts: 1 requests and targets, 2
	// timeouts, 3 statuses, 4 health, 5 deregistration, 6 logs and metrics, 7
	// limits, 8 controller.
	Section int
	Grade   Grade
	Source  string
	Name    string
	Test    func(*T)
}

// Facts are all of them, by section.
func Facts() []Fact {
	all := slices.Concat(
		routingFacts(), timeoutFacts(), statusFacts(), refusalFacts(), messageFacts(), bodyFacts(), protocolFacts(), logFacts(),
		healthFacts(), reasonFacts(), algorithmFacts(), weightFacts(), deregistrationFacts(), ruleFacts(), limitFacts(),
		controllerFacts(), annotationFacts(), gateFacts(),
	)
	slices.SortStableFunc(all, func(a, b Fact) int { return a.Section - b.Section })
	return all
}
