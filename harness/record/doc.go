// Package record is the run directory: the only thing that running hands over
// to reporting. Create writes one, Open reads one.
//
//	runs/20260102T150405Z-scale-in/
//	  run.json                  harness.Run: what was asked, the plan, the environment
//	  0007-hpa-scale-in-instance-prestop-sleep-10s-pooled/
//	    requests.jsonl.zst      one harness.Request a line, zstd
//	    events.jsonl            one harness.Event a line
//	    lb.jsonl targets.jsonl  what the load balancer logged of requests and of its targets' states, as it wrote it
//	    app.jsonl               the same of the application
//	    trial.json              harness.TrialResult; written last: without it the trial is incomplete
//	  0007.2-...                the second attempt, if the first was invalid
//	  interrupted/              trials that were cut off before the run was resumed, as they were
//	  resumed.json              Resumption, one for each time the run was resumed
//	  end.json                  harness.RunEnd; without it, or without Complete, the run is incomplete
//
// JSON files appear whole, by rename. The line files grow while the trial runs
// and are flushed every 250 ms, so that a process that is killed loses no more
// than that. What it leaves behind is readable: a torn end is a Warning, while
// anything wrong before the end is an error that names file and line.
//
// Nothing that can be computed from the record (statistics, causes) is in it.
package record
