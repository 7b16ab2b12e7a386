package alb

import (
	_ "embed"
	"strings"
)

//go:embed deploy.yaml
var deployment string

// Binary is the path of lameduck's binary in the image that Manifest runs.
const Binary = "/lameduck"

// Manifest is what kubectl apply takes to run the load balancer as a pod of an
// image, whose entry point must be lameduck (see package clusters/images). All
// objects have the label app.kubernetes.io/name: lameduck-alb.
func Manifest(image string) string {
	return strings.ReplaceAll(deployment, "image: IMAGE", "image: "+image)
}
