package form

import _ "embed"

//go:embed starter.yaml
var starter []byte

// Starter is a commented experiment file to begin with.
func Starter() []byte { return append([]byte(nil), starter...) }
