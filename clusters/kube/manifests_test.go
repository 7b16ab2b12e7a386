package kube

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lameduck/harness"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing")

func TestManifests(t *testing.T) {
	for name, edit := range map[string]func(*harness.Setup){
		"instance-none": func(*harness.Setup) {},
		"ip-prestop": func(s *harness.Setup) {
			s.LoadBalancer.TargetType = harness.TargetIP
			s.Workload.PreStopSleep = harness.Dur(40 * time.Second)
			s.Workload.ResponseTime.SlowShare = 0
		},
		"instance-wait-cpu": func(s *harness.Setup) {
			s.Workload.OnSIGTERM, s.Workload.SIGTERMWait = harness.SIGTERMWait, harness.Dur(10*time.Second)
			s.Workload.StartDelay = harness.Dur(1500 * time.Millisecond)
			s.Workload.CPURequest = "0.1"
			s.Scenario.Drive = harness.DriveCPU
		},
		"instance-metric": func(s *harness.Setup) {
			s.Scenario.Drive = harness.DriveMetric
			s.Workload.HPA = harness.HPABehavior{Pods: 1, Period: harness.Dur(5 * time.Second)}
		},
		"ip-everything": func(s *harness.Setup) {
			w := &s.Workload
			w.PreStopSleep, w.PreStopBy = harness.Dur(15*time.Second), harness.PreStopHTTP
			w.CloseWhileDraining, w.FailReadiness = true, true
			w.MaxSurge, w.MaxUnavailable, w.MinReadySeconds, w.PodDisruptionBudget = "25%", "0", 5, "75%"
			w.HPA = harness.HPABehavior{Pods: 1, Period: harness.Dur(20 * time.Second), Stabilization: harness.Dur(time.Minute)}
			s.LoadBalancer.TargetType, s.LoadBalancer.ReadinessGate = harness.TargetIP, true
			s.LoadBalancer.WeightLag = harness.DurationRange{Min: 10 * time.Second, Max: 20 * time.Second}
			s.Faults = []harness.Fault{{Kind: harness.FaultThrottledAPI, Every: harness.Dur(30 * time.Second)}}
			s.Load.HTTP2 = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			trial := testTrial()
			edit(&trial.Setup)
			compareGolden(t, name, trial)
		})
	}
}

// compareGolden compares a trial's manifests with testdata.
func compareGolden(t *testing.T, name string, trial harness.Trial) {
	t.Helper()
	objects, err := Manifests(trial, "lameduck.local/target:0123456789ab", 20007)
	if err != nil {
		t.Fatal(err)
	}
	got, err := objects.YAML()
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the manifests differ from %s (go test -update writes it); got:\n%s", golden, got)
	}
}

func TestManifestsRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		cpu  string
		port int
		want string
	}{
		"no CPU request":  {"", 20007, "workload.cpuRequest"},
		"bad CPU request": {"some", 20007, "workload.cpuRequest"},
		"no CPU":          {"0", 20007, "workload.cpuRequest"},
		"port":            {"50m", 65536, "listener port 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			trial := testTrial()
			trial.Setup.Workload.CPURequest = c.cpu
			if _, err := Manifests(trial, "image", c.port); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %s", err, c.want)
			}
		})
	}
}
