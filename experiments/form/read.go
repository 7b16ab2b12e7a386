package form

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds a file that is read, so that a wrong path is no harm.
const maxFile = 4 << 20

// Read reads an experiment file. What is wrong with its content is an error of
// type Problems.
func Read(path string, c Catalogue) (Document, error) {
	data, err := readFile(path)
	if err != nil {
		return Document{}, fmt.Errorf("read experiment: %w", err)
	}
	return Parse(path, data, c)
}

// Parse reads the content of the experiment file at path.
func Parse(path string, data []byte, c Catalogue) (Document, error) {
	d := decoder{file: path, catalogue: c, lines: make(map[string]int)}
	root, err := d.document(data)
	if err != nil {
		return Document{}, err
	}
	var f file
	d.lines[""] = root.Line
	d.decode(root, "", reflect.ValueOf(&f).Elem(), limits{})
	if len(d.problems) > 0 {
		return Document{}, d.problems.sorted()
	}
	doc := d.build(f, nameOf(path), filepath.Dir(path))
	if len(d.problems) == 0 {
		d.check(doc.Experiment)
	}
	if len(d.problems) > 0 {
		return Document{}, d.problems.sorted()
	}
	return doc, nil
}

// document is the one YAML document of a file.
func (d *decoder) document(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, second yaml.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) || (err == nil && len(node.Content) == 0) {
		return nil, Problems{{d.file, 1, "", "is empty: want an experiment; lameduck init writes one"}}
	} else if err != nil {
		return nil, d.syntax(err)
	}
	if err := decoder.Decode(&second); err == nil {
		return nil, Problems{{d.file, second.Line, "", "has a second document: want one experiment in a file"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, d.syntax(err)
	}
	return node.Content[0], nil
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax is an error of the YAML parser with its line where the others have it.
func (d *decoder) syntax(err error) error {
	line := 1
	text := err.Error()
	if found := yamlError.FindStringSubmatch(text); found != nil {
		if n, err := strconv.Atoi(found[1]); err == nil {
			line = n
		}
		text = text[len(found[0]):]
	}
	return Problems{{d.file, line, "", "is not YAML: " + text}}
}

// readFile reads a regular file: another may have no end, or block.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := checkFile(path, info); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = tooLarge(path)
	}
	return data, err
}

// checkFile refuses what is no file that can be read as a whole.
func checkFile(path string, info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is %s: want a file", path, modeOf(info))
	}
	if info.Size() > maxFile {
		return tooLarge(path)
	}
	return nil
}

func tooLarge(path string) error {
	return fmt.Errorf("%s is too large: want at most %d MiB", path, maxFile>>20)
}

// modeOf says what is there in the place of a file.
func modeOf(info os.FileInfo) string {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return "a directory"
	case mode&os.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&os.ModeDevice != 0:
		return "a device"
	default:
		return "no regular file"
	}
}
