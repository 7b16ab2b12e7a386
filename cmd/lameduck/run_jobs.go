package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"lameduck/clusters/kube"
	"lameduck/experiments"
	"lameduck/harness"
	"lameduck/harness/record"
	"lameduck/reports"
)

// closeLimit bounds waiting for the last namespaces to go.
const closeLimit = time.Minute

// job is one run to do: of an experiment, or what is left of an interrupted one.
type job struct {
	experiment harness.Experiment
	source     string // the file or name of the experiment, or the interrupted run
	parallel   int
	command    string // that starts it again
	// Of an interrupted run.
	store  *record.Store
	reader *record.Reader
}

// plan are the trials to run.
func (j *job) plan(runID string) (harness.Plan, error) {
	if j.reader == nil {
		return harness.Expand(j.experiment, runID)
	}
	return harness.Plan{Cells: j.reader.Run.Plan.Cells, Trials: j.reader.Remaining(runID)}, nil
}

// open makes the job's record, or takes it up again.
func (j *job) open(out, runID string, started time.Time, plan harness.Plan, env harness.Environment) (*record.Store, error) {
	at := started.Format(time.RFC3339)
	if j.reader == nil {
		return record.Create(out, harness.Run{
			Tool: version, ID: runID, Experiment: j.experiment, Plan: plan, Environment: env, Started: at, Command: j.command,
		})
	}
	differs, err := compareEnvironments(j.reader.Run.Environment, env)
	if err != nil {
		return nil, usageError(err)
	}
	return j.store, j.store.Resume(j.reader, record.Resumption{ID: runID, Tool: version, Started: at, Differs: differs})
}

// runJobs does one job after the other on one cluster. All are checked before
// anything is created.
func runJobs(ctx context.Context, f runFlags, jobs []*job, out, errOut io.Writer) (err error) {
	for _, j := range jobs {
		if j.store != nil {
			defer j.store.Close()
		}
		plan, err := j.plan("")
		if err != nil {
			return usageError(fmt.Errorf("%s: %w", j.experiment.Name, err))
		}
		if j.reader != nil && len(plan.Trials) == 0 {
			return j.nothingToDo(out, errOut)
		}
		runner := harness.Runner{Scenarios: experiments.Scenarios()}
		if err := runner.Check(plan); err != nil {
			return usageError(fmt.Errorf("%s: %w", j.experiment.Name, err))
		}
		if err := checkObjects(j.source, plan, kube.Describe); err != nil {
			return usageError(err)
		}
	}
	provider, err := newProvider(f.cluster.provider)
	if err != nil {
		return err
	}
	if f.resume == "" {
		if err := record.Preflight(f.out); err != nil {
			return usageError(fmt.Errorf("--out: %w", err))
		}
	}
	if err := checkImages(imageSources(jobs)); err != nil {
		return usageError(err)
	}
	if _, err := targetBinary(); err != nil {
		return err
	}

	log := newProgress(errOut)
	lab, err := f.openLab(ctx, provider, jobs, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.close()) }()
	stays := f.use || f.keep
	var done []outcome
	for i, j := range jobs {
		if i > 0 {
			fmt.Fprintln(out)
		}
		o := j.run(ctx, lab, f.out, stays, out, log)
		done = append(done, o)
		if ctx.Err() != nil {
			break
		}
		if o.err != nil && i+1 < len(jobs) {
			log.printf("%s could not be done: %s", o.name, o.err)
			if err := lab.recover(ctx, o.runID, log); err != nil {
				done[i].err = errors.Join(o.err, err)
				break
			}
		}
	}
	if len(jobs) > 1 {
		if err := printSummary(out, jobs, done); err != nil {
			return err
		}
	}
	return verdictOf(done)
}

// nothingToDo is the end of a job whose trials all have a result. A run that was
// cut off before it could say so is complete from now on.
func (j *job) nothingToDo(out, errOut io.Writer) error {
	fmt.Fprintf(errOut, "%s is complete: there is nothing to do\n", j.reader.Dir)
	if !j.reader.Complete() {
		if err := j.store.Finish(harness.RunEnd{Ended: time.Now().UTC().Format(time.RFC3339), Complete: true}); err != nil {
			return err
		}
	}
	report, err := printReport(j.reader.Dir, out)
	if err != nil {
		return err
	}
	return verdictOf([]outcome{{report: &report}})
}

// run does the job and prints its report.
func (j *job) run(ctx context.Context, lab *lab, parent string, stays bool, out io.Writer, log *progress) (o outcome) {
	started := time.Now().UTC()
	o = outcome{name: j.experiment.Name, runID: started.Format("0102150405")}
	plan, err := j.plan(o.runID)
	if err != nil {
		o.err = err
		return o
	}
	store, err := j.open(parent, o.runID, started, plan, lab.environment)
	if err != nil {
		o.err = err
		return o
	}
	o.dir = store.Dir()
	log.begin(len(plan.Trials))
	log.printf("%s: %d trials, %d at a time, record in %s", o.name, len(plan.Trials), j.parallel, o.dir)
	runner := harness.Runner{
		World: lab.world, Attacker: lab.attacker, Scenarios: experiments.Scenarios(), Store: store,
		CPU: harness.ReadCPU, Parallel: j.parallel, Progress: log.trial,
	}
	_, runErr := runner.Run(ctx, j.experiment, plan)
	if stays {
		// A cluster that stays must not keep our namespaces.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		runErr = errors.Join(runErr, lab.world.Close(closing))
		cancel()
	}
	end := harness.RunEnd{Ended: time.Now().UTC().Format(time.RFC3339), Complete: runErr == nil}
	if runErr != nil {
		end.Reason = runErr.Error()
		log.printf("the run is not complete; to complete it: lameduck run --resume %s", o.dir)
	}
	if err := store.Finish(end); err != nil {
		o.err = errors.Join(runErr, err)
		return o
	}
	report, err := printReport(o.dir, out)
	o.report, o.err = &report, errors.Join(runErr, err)
	return o
}

// printReport prints the table and writes report.md.
func printReport(dir string, out io.Writer) (reports.Report, error) {
	report, err := reports.Read(dir)
	if err != nil {
		return report, err
	}
	if err := reports.Render(out, report, reports.FormatTable, terminalWidth()); err != nil {
		return report, err
	}
	path, err := writeMarkdown(dir, report)
	if err != nil {
		return report, fmt.Errorf("write report: %w", err)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	fmt.Fprintf(out, "report: %s\n", path)
	return report, nil
}
