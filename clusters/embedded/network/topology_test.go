package network

import "testing"

func TestParseDead(t *testing.T) {
	for in, want := range map[string]Dead{"": Drop, "drop": Drop, "unreachable": Unreachable, "reset": Reset} {
		if got, err := ParseDead(in); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	if got, err := ParseDead("explode"); err == nil {
		t.Errorf("explode: %q and no error", got)
	}
}
