package experiments

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"lameduck/experiments/form"
	"lameduck/harness"
)

// Words are what experiment files can name.
func Words() form.Catalogue {
	c := form.Catalogue{Mitigation: Mitigation, Scenarios: Scenarios()}
	for _, f := range MitigationForms() {
		c.Forms = append(c.Forms, f.Form)
	}
	return c
}

// Load reads an experiment file, or finds a built-in experiment by its name. A
// file that has the name of one is reached as ./NAME.
func Load(pathOrName string) (harness.Experiment, form.ClusterOptions, error) {
	var doc form.Document
	var err error
	if slices.Contains(Names(), pathOrName) {
		doc, err = builtin(pathOrName)
	} else if _, missing := os.Stat(pathOrName); errors.Is(missing, fs.ErrNotExist) {
		err = fmt.Errorf("experiment %q: want one of %s, or a file", pathOrName, strings.Join(Names(), ", "))
	} else {
		doc, err = form.Read(pathOrName, Words())
	}
	return doc.Experiment, doc.Cluster, err
}
