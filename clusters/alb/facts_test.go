package alb

import (
	"fmt"
	"os"
	"testing"
	"text/tabwriter"
)

// Grades of a fact: documented by AWS, read in the AWS Load Balancer
// Controller's source, observed and reported by users, inferred, unknown (a
// setting).
const (
	gradeDocumented = "D"
	gradeSource     = "S"
	gradeObserved   = "O"
	gradeInferred   = "I"
	gradeUnknown    = "U"
)

// Where facts come from.
const (
	guideTroubleshooting = "AWS user guide for Application Load Balancers, Troubleshooting"
	guideAttributes      = "AWS user guide for Application Load Balancers, Load balancer attributes"
	guideTargetGroups    = "AWS user guide for Application Load Balancers, Target groups"
	guideIntroduction    = "AWS user guide for Application Load Balancers, What is an Application Load Balancer"
	guideHeaders         = "AWS user guide for Application Load Balancers, HTTP headers"
	guideTracing         = "AWS user guide for Application Load Balancers, Request tracing"
	guideAccessLogs      = "AWS user guide for Application Load Balancers, Access logs"
	controllerSource     = "kubernetes-sigs/aws-load-balancer-controller v3.5"
	rfc9110              = "RFC 9110 and 9112"
	notPublished         = "not published"
)

// fact is one thing that the stand-in does as an ALB, or its controller, does.
type fact struct {
	section string // of the project's list of facts
	grade   string
	source  string
	name    string
	test    func(*testing.T)
}

func allFacts() []fact {
	var all []fact
	all = append(all, routingFacts()...)
	all = append(all, timeoutFacts()...)
	all = append(all, statusFacts()...)
	all = append(all, messageFacts()...)
	all = append(all, deregistrationFacts()...)
	return append(all, controllerFacts()...)
}

// TestFacts runs every fact's test. With ALB_FACTS=1 it prints the table.
func TestFacts(t *testing.T) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range allFacts() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.test(t)
		})
		if os.Getenv("ALB_FACTS") != "" {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.section, f.grade, f.name, f.source)
		}
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
}
