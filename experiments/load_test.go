package experiments

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scale-in")
	const text = "apiVersion: lameduck/v1\nkind: Experiment\nspec:\n  cluster: {nodes: 3}\n  scenario: {baseline: {}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, cluster, err := Load(file)
	if err != nil || e.Base.Scenario.Name != BaselineName || cluster.Nodes != 3 {
		t.Errorf("file: scenario %q, cluster %+v, %v", e.Base.Scenario.Name, cluster, err)
	}
	t.Chdir(filepath.Dir(file))
	if e, _, err := Load("scale-in"); err != nil || e.Base.Scenario.Name != HPAScaleInName {
		t.Errorf("name: scenario %q, %v; want the built-in experiment", e.Base.Scenario.Name, err)
	}
	if e, _, err := Load("./scale-in"); err != nil || e.Base.Scenario.Name != BaselineName {
		t.Errorf("./name: scenario %q, %v; want the file's", e.Base.Scenario.Name, err)
	}
	if _, _, err := Load("scale-out"); err == nil || !strings.Contains(err.Error(), `experiment "scale-out": want one of baseline,`) || !strings.HasSuffix(err.Error(), "or a file") {
		t.Errorf("neither: got %v", err)
	}
}
