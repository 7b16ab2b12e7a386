// Command kube is every Kubernetes process of an embedded cluster, and etcd, in one binary.
//
// The control plane, the kubelet and etcd share most of their packages, so one binary is compiled and linked in a
// fraction of the time, and takes a fraction of the space, that eight would need. It decides what to be by the name it
// is called with (a link named kubelet is a kubelet) or, called as kube, by its first argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	_ "time/tzdata" // CronJobs may name a time zone, and the machine may have no zone files

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	genericapiserver "k8s.io/apiserver/pkg/server"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubectl must be able to log in to clusters of other kinds
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // build information on /metrics
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	metricsserver "sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

// programs maps a program's name to its main function, which returns the exit code. The functions read os.Args.
var programs = map[string]func() int{
	"kube-apiserver":          serve(apiserver.NewAPIServerCommand),
	"kube-controller-manager": serve(controllers.NewControllerManagerCommand),
	"kube-scheduler":          serve(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              serve(proxy.NewProxyCommand),
	"kubelet":                 serve(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"etcd":                    runEtcd,
	"metrics-server":          runMetricsServer,
	"kubectl":                 runKubectl,
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		// Called as kube: drop our own name, so that the program sees the arguments it would have had on its own.
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	program, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "kube: no program %q; name one of these first: %s\n", name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Exit(program())
}

func names() []string {
	var all []string
	for name := range programs {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// serve builds the command only when it is asked for: building one registers flags and metrics that clash with another's.
func serve(command func() *cobra.Command) func() int {
	return func() int { return cli.Run(command()) }
}

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

func runMetricsServer() int {
	if slices.Contains(os.Args[1:], "--version") {
		// It would print the version of the client library, which here is that of Kubernetes.
		fmt.Println(moduleVersion("sigs.k8s.io/metrics-server"))
		return 0
	}
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := metricsserver.NewMetricsServerCommand(genericapiserver.SetupSignalHandler()).Execute(); err != nil {
		return 1
	}
	return 0
}

// moduleVersion returns the version of a module in this binary.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path == path {
			return module.Version
		}
	}
	return "unknown"
}

func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints what kubectl's users are used to, and exits
	}
	return 0
}
