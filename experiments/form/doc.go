// Package form reads experiment files: YAML of apiVersion lameduck/v1, kind
// Experiment.
//
//	Read, Parse -> Document   a file as harness.Experiment and ClusterOptions
//	Schema                    its JSON schema, for editors
//	Starter                   a commented file to begin with
//	Reference                 the fields as Markdown, for docs/experiment-file.md
//
// The types in file.go are the one source of all of these: their tags have the
// names, defaults, limits and descriptions of the fields. What a tag can not say
// is said by harness.Expand and by the scenario, whose errors are mapped back to
// the lines of the file (check.go). All that is wrong is reported at once
// (Problems).
//
// What can be named in a file but is not part of the form, such as mitigations,
// comes in a Catalogue, so that the catalogue itself can be written in the form.
package form
