package record

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lameduck/harness"
)

// written returns the requests file of a trial with n requests that was
// flushed after every seventh.
func written(t testing.TB, n int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), requestsFile)
	f, err := createFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := newZstdFile(f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		lines.addJSON(aRequest(i))
		if i%7 == 6 {
			lines.flush()
		}
	}
	if err := lines.close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// trialWith is a trial whose record is made of the given files.
func trialWith(t testing.TB, files map[string][]byte) Trial {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "0001-trial")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Trial{Dir: dir}
}

func TestTornRequestsAtEveryByte(t *testing.T) {
	const n = 40
	whole := written(t, n)
	trial := trialWith(t, map[string][]byte{requestsFile: whole})
	if got, warnings := requests(t, trial); len(got) != n || len(warnings) > 0 {
		t.Errorf("whole: %d requests, want %d; warnings %v", len(got), n, warnings)
	}
	longer := n
	for cut := len(whole) - 1; cut >= 0; cut-- {
		truncate(t, filepath.Join(trial.Dir, requestsFile), cut)
		got, warnings := requests(t, trial)
		for i, r := range got {
			if r != aRequest(i) {
				t.Fatalf("cut at %d: request %d is %+v", cut, i, r)
			}
		}
		if len(warnings) != 1 || warnings[0].File != "0001-trial/"+requestsFile {
			t.Fatalf("cut at %d of %d: warnings %v, want one", cut, len(whole), warnings)
		}
		if len(got) > longer {
			t.Fatalf("cut at %d: %d requests, more than the %d of a longer file", cut, len(got), longer)
		}
		// Without its last byte the file still has every batch but the last.
		if cut == len(whole)-1 && len(got) < n-n%7 {
			t.Errorf("cut before the last byte: %d requests, want at least %d", len(got), n-n%7)
		}
		longer = len(got)
	}
}

func truncate(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.Truncate(path, int64(size)); err != nil {
		t.Fatal(err)
	}
}

func TestTornEventsAtEveryByte(t *testing.T) {
	var whole []byte
	var ends []int // offsets after each newline
	for i := range 5 {
		whole = fmt.Appendf(whole, `{"at":%d,"kind":"pod-gone","obj":"app-%d"}`+"\n", i, i)
		ends = append(ends, len(whole))
	}
	trial := trialWith(t, map[string][]byte{eventsFile: whole})
	for cut := len(whole); cut >= 0; cut-- {
		truncate(t, filepath.Join(trial.Dir, eventsFile), cut)
		n := 0
		warnings, err := trial.Events(func(harness.Event) error { n++; return nil })
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := 0
		for _, end := range ends {
			if end <= cut {
				want++
			}
		}
		torn := cut != 0 && !slices.Contains(ends, cut)
		if n != want || (len(warnings) == 1) != torn {
			t.Fatalf("cut at %d: %d events, warnings %v; want %d, torn %t", cut, n, warnings, want, torn)
		}
		if torn {
			text := fmt.Sprintf("0001-trial/events.jsonl: the record was cut off in line %d; the %d lines before it are counted", want+1, want)
			if warnings[0].String() != text {
				t.Fatalf("cut at %d: %q, want %q", cut, warnings[0], text)
			}
		}
	}
}

func TestGarbageIsAnErrorWithFileAndLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"not JSON", "{\"at\":1,\"kind\":\"mark\"}\nnonsense\n{\"at\":2,\"kind\":\"mark\"}\n",
			":2: invalid character 'o' in literal null (expecting 'u')"},
		{"wrong type", "{\"at\":\"soon\",\"kind\":\"mark\"}\n", ":1: json: cannot unmarshal"},
		{"no kind", "{\"at\":1,\"kind\":\"mark\"}\n{}\n", ":2: an event without a kind"},
		{"empty line", "\n", ":1: unexpected end of JSON input"},
		{"too long", strings.Repeat("x", maxLine+1), ":1: longer than 1048576 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			trial := trialWith(t, map[string][]byte{eventsFile: []byte(c.text)})
			_, err := trial.Events(func(harness.Event) error { return nil })
			if want := filepath.Join(trial.Dir, eventsFile) + c.want; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v\nwant %s", err, want)
			}
		})
	}
	t.Run("damaged block", func(t *testing.T) {
		whole := written(t, 200)
		damaged := bytes.Clone(whole)
		for i := len(whole) / 2; i < len(whole)/2+50; i++ {
			damaged[i] ^= 0xff
		}
		trial := trialWith(t, map[string][]byte{requestsFile: damaged})
		n := 0
		_, err := trial.Requests(func(harness.Request) error { n++; return nil })
		prefix := fmt.Sprintf("%s:%d: ", filepath.Join(trial.Dir, requestsFile), n+1)
		if err == nil || !strings.HasPrefix(err.Error(), prefix) || n == 0 || n >= 200 {
			t.Errorf("after %d requests: %v\nwant %s...", n, err, prefix)
		}
	})
	t.Run("no outcome", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), requestsFile)
		f, err := createFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := newZstdFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines.add([]byte(`{"id":"r1"}`))
		if err := lines.close(); err != nil {
			t.Fatal(err)
		}
		_, err = Trial{Dir: filepath.Dir(path)}.Requests(func(harness.Request) error { return nil })
		if want := path + ":1: a request without an outcome"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

func TestCallersErrorEndsReading(t *testing.T) {
	trial := trialWith(t, map[string][]byte{requestsFile: written(t, 50)})
	enough := errors.New("enough")
	n := 0
	_, err := trial.Requests(func(harness.Request) error {
		if n++; n == 3 {
			return enough
		}
		return nil
	})
	if err != enough || n != 3 {
		t.Errorf("%v after %d requests", err, n)
	}
}

// A trial that was killed before its files were made is incomplete; one that
// has a result must have them.
func TestMissingFileOfAStartedTrial(t *testing.T) {
	trial := trialWith(t, nil)
	warnings, err := trial.Events(func(harness.Event) error { return nil })
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].Text, "stopped before") {
		t.Errorf("warnings %v, error %v; want one warning", warnings, err)
	}
	trial.Result = &harness.TrialResult{}
	if _, err := trial.Events(func(harness.Event) error { return nil }); err == nil {
		t.Error("a file missing from a complete trial is not an error")
	}
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"newer", runFile, `{"schema":7,"tool":"v9.1","plan":"in a form of its own"}`,
			"open run: DIR: written by a newer lameduck: version v9.1 wrote format 7, this one reads up to 2: use that version, or a later one"},
		{"no schema", runFile, `{}`, "open run: DIR/run.json has no schema number: it is not the record of a run"},
		{"no JSON", runFile, `{"schema":1,`, "open run: DIR/run.json: unexpected end of JSON input"},
		{"wrong plan", runFile, `{"schema":1,"plan":[]}`, "open run: DIR/run.json: json: cannot unmarshal array"},
		{"twice", runFile, `{"schema":1,"plan":{"trials":[{"number":1},{"number":1}]}}`, "open run: DIR/run.json: trial 1 is planned twice"},
		{"end", endFile, `no`, "open run: DIR/end.json: invalid character"},
		{"trial", "0001-hpa-scale-in-instance-none-pooled/trial.json", `{`, "open run: DIR/0001-hpa-scale-in-instance-none-pooled/trial.json: unexpected end"},
		{"other cell", "0001-hpa-scale-in-instance-none-pooled/trial.json", `{"trial":{"number":1}}`,
			"open run: DIR/0001-hpa-scale-in-instance-none-pooled/trial.json: is about the cell \"  \", but the plan's trial 1 is about"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := aRun()
			s := create(t, run)
			if err := openTrial(t, s, run.Plan.Trials[0]).Abandon(); err != nil {
				t.Fatal(err)
			}
			rewrite(t, filepath.Join(s.Dir(), c.file), c.text)
			_, err := Open(s.Dir())
			want := strings.ReplaceAll(c.want, "DIR", s.Dir())
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v\nwant %s", err, want)
			}
			if newer := c.name == "newer"; errors.Is(err, ErrNewer) != newer {
				t.Errorf("errors.Is(err, ErrNewer) is %t", !newer)
			}
		})
	}
	empty := t.TempDir()
	_, err := Open(empty)
	if err == nil || !strings.HasSuffix(err.Error(), ": give the directory of one run") {
		t.Errorf("got %v", err)
	}
}

func TestForeignDirectoriesAreNamed(t *testing.T) {
	s := create(t, aRun())
	for _, name := range []string{"0099-not-planned", "notes", "0002-one", "0002-two"} {
		if err := os.Mkdir(filepath.Join(s.Dir(), name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, w := range reopen(t, s).Warnings {
		got = append(got, w.String())
	}
	const text = ": is not the directory of a planned trial; it is left out"
	if want := []string{"0002-two" + text, "0099-not-planned" + text, "notes" + text}; !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestRunWithoutEndIsIncomplete(t *testing.T) {
	s := create(t, aRun())
	if r := reopen(t, s); r.End != nil || r.Complete() {
		t.Errorf("end %v, complete %t", r.End, r.Complete())
	}
	if err := s.Finish(harness.RunEnd{Complete: true}); err != nil {
		t.Fatal(err)
	}
	if r := reopen(t, s); !r.Complete() {
		t.Error("not complete")
	}
}

func TestLatest(t *testing.T) {
	parent := t.TempDir()
	if _, err := Latest(parent); err == nil || err.Error() != "find the latest run: there is none in "+parent {
		t.Errorf("got %v", err)
	}
	var want string
	for _, at := range []string{"2026-03-01T10:00:00Z", "2026-03-02T09:00:00Z", "2026-03-01T23:00:00+12:00"} {
		run := aRun()
		run.Started = at
		s, err := Create(parent, run)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(at, "2026-03-02") {
			want = s.Dir()
		}
	}
	rewrite(t, filepath.Join(parent, "zzz.txt"), "not a run")
	if err := os.Mkdir(filepath.Join(parent, "zzz"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Latest(parent); got != want || err != nil {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func FuzzReadRequests(f *testing.F) {
	whole := written(f, 30)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		n := 0
		each := func([]byte) error { n++; return nil }
		if torn, err := scanZstd(bytes.NewReader(text), each); torn != "" && err != nil {
			t.Errorf("both torn (%s) and wrong (%v)", torn, err)
		}
	})
}

func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("{\"at\":1,\"kind\":\"mark\"}\n{\"at\""))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		trial := trialWith(t, map[string][]byte{eventsFile: text})
		n := 0
		warnings, err := trial.Events(func(harness.Event) error { n++; return nil })
		lines := bytes.Count(text, []byte("\n"))
		if err == nil && n != lines {
			t.Errorf("%d events of %d whole lines", n, lines)
		}
		if torn := len(text) > 0 && text[len(text)-1] != '\n'; err == nil && (len(warnings) == 1) != torn {
			t.Errorf("torn %t, warnings %v", torn, warnings)
		}
	})
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"schema":1,"plan":{"trials":[{"number":1}]}}`), []byte(`{"complete":true}`), []byte(`{"verdict":"pass"}`))
	f.Fuzz(func(t *testing.T, run, end, trial []byte) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "0001-x"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{runFile: run, endFile: end, "0001-x/" + trialFile: trial} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := Open(dir); (r == nil) == (err == nil) {
			t.Errorf("reader %v, error %v", r, err)
		}
	})
}
