// Package reports says what a run means. It works from the run directory
// alone, so a better rule here renders old runs anew:
//
//	Read -> Report (pure data) -> Judge  -> Result (exit code)
//	                           -> Render -> table, md, json
//
// Counts come from the requests themselves and are exact; what the runner
// counted while it ran is only used to cross-check. The unit of every
// statement is the trial, because failures come in bursts: a report shows the
// failed requests per trial, the worst trial and, when none failed, the bound
// that the number of trials allows. Trials that are invalid, cut off or were
// never started are told of, never dropped.
package reports
