package main

import (
	"strings"
	"testing"
)

// Each sentence must say what to install, whatever part is missing.
func TestMissingCToolsAreNamed(t *testing.T) {
	for variable, want := range map[string]string{
		"CC":         "there is no no-such-tool",
		"PKG_CONFIG": "needs no-such-tool",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("CC", "true")
			t.Setenv("PKG_CONFIG", "true")
			if err := checkC(t.Context()); err != nil {
				t.Fatalf("with all tools: %v", err)
			}
			t.Setenv(variable, "no-such-tool --flag")
			isSentence(t, checkC(t.Context()), want)
		})
	}
	for variable, failing := range map[string]string{"PKG_CONFIG": "false", "CC": "false"} {
		t.Run("headers by "+variable, func(t *testing.T) {
			t.Setenv("CC", "true")
			t.Setenv("PKG_CONFIG", "true")
			t.Setenv(variable, failing)
			isSentence(t, checkC(t.Context()), "headers of libseccomp")
		})
	}
}

func isSentence(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	if !strings.Contains(text, want) || !strings.Contains(text, "apt-get install") || strings.Contains(text, "\n") {
		t.Errorf("got %q, want one sentence with %q and what to install", text, want)
	}
}

// The check comes before anything is compiled, even the components that need no C.
func TestNothingIsBuiltWithoutACompiler(t *testing.T) {
	b, _ := newBuilder(t)
	last := b.components[0]
	last.name, last.needsC = "last", true
	b.components = append(b.components, last)
	t.Setenv("CC", "no-such-tool")
	isSentence(t, b.run(t.Context()), "C compiler")
	if names := entries(t, b); len(names) != 0 {
		t.Errorf("the cache has %q", names)
	}
}
