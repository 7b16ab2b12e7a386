package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lameduck/harness"
	"lameduck/harness/record"
)

// resumed is the job that completes an interrupted run. Flags say how, but not
// what: that is in the record.
func (f *runFlags) resumed(changed func(flag string) bool, args []string) (*job, error) {
	if len(args) > 0 {
		return nil, fmt.Errorf("%s: the experiment is that of the run: leave it out with --resume", strings.Join(args, " "))
	}
	for _, flag := range []string{"mitigations", "targets", "connections", "rate", "repeats", "out"} {
		if changed(flag) {
			return nil, fmt.Errorf("--%s concerns a new run: leave it out with --resume", flag)
		}
	}
	store, reader, err := record.Reopen(f.resume)
	if err != nil {
		return nil, fmt.Errorf("--resume: %w", err)
	}
	was := reader.Run.Environment
	options := &f.cluster.options
	for _, option := range []struct {
		flag, was, asked string
		set              func()
	}{
		{"cluster", was.Provider, f.cluster.provider, func() { f.cluster.provider = was.Provider }},
		{"nodes", fmt.Sprint(was.Nodes), fmt.Sprint(options.Nodes), func() { options.Nodes = was.Nodes }},
		{"dead-address", cmp.Or(was.Details[deadAddressDetail], options.DeadAddress), options.DeadAddress,
			func() { options.DeadAddress = cmp.Or(was.Details[deadAddressDetail], options.DeadAddress) }},
	} {
		if changed(option.flag) && option.asked != option.was {
			store.Close()
			return nil, fmt.Errorf("--%s %s: the run has %s: leave it out with --resume", option.flag, option.asked, option.was)
		}
		if !f.use {
			option.set()
		}
	}
	e := reader.Run.Experiment
	return &job{experiment: e, source: f.resume, parallel: f.parallelTrials(e), store: store, reader: reader}, nil
}

// compareEnvironments says what is not as it was. It is an error if figures from
// both could not stand in one table.
func compareEnvironments(was, now harness.Environment) (differs []string, err error) {
	for _, must := range []struct{ what, was, now string }{
		{"kind of cluster", was.Provider, now.Provider},
		{"Kubernetes", was.Kubernetes, now.Kubernetes},
		{"number of nodes", fmt.Sprint(was.Nodes), fmt.Sprint(now.Nodes)},
	} {
		if must.was != must.now {
			return nil, fmt.Errorf("--resume: %s is %s, but the run began with %s: its figures would not be comparable, start it anew", must.what, must.now, must.was)
		}
	}
	compare := func(what, was, now string) {
		if was != now {
			differs = append(differs, fmt.Sprintf("%s is %s, was %s", what, cmp.Or(now, "not known"), cmp.Or(was, "not known")))
		}
	}
	compare("kernel", was.Kernel, now.Kernel)
	compare("number of cores", fmt.Sprint(was.Cores), fmt.Sprint(now.Cores))
	compare("OS", was.OS, now.OS)
	details := maps.Clone(was.Details)
	if details == nil {
		details = make(map[string]string)
	}
	maps.Copy(details, now.Details)
	for _, name := range slices.Sorted(maps.Keys(details)) {
		compare(name, was.Details[name], now.Details[name])
	}
	return differs, nil
}
