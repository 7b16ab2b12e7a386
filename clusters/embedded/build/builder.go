package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"time"
)

// A builder makes every component be in the store and links their binaries into the output directory.
type builder struct {
	components []component
	source     string // the directory that component.dir is relative to
	store      store
	out        string
	stderr     io.Writer
	inPlace    bool // stderr is a terminal: redraw the progress line instead of printing another
}

// An item is a component with the key of its present content.
type item struct {
	component
	key string
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.stderr, format+"\n", args...)
}

func (b *builder) run(ctx context.Context) error {
	if err := checkMachine(); err != nil {
		return err
	}
	items, err := b.items(ctx)
	if err != nil {
		return err
	}
	built := 0
	// Looking needs no lock: entries appear whole, by rename. So a build that has nothing to do never waits.
	if missing := b.missing(items, false); len(missing) > 0 {
		if built, err = b.buildMissing(ctx, items, missing); err != nil {
			return err
		}
	}
	if err := b.link(items); err != nil {
		return err
	}
	if built == 0 {
		b.say("embedded cluster: binaries in %s are up to date", b.out)
	} else {
		b.say("embedded cluster: binaries are in %s", b.out)
	}
	return nil
}

func (b *builder) items(ctx context.Context) ([]item, error) {
	items := make([]item, len(b.components))
	for i, c := range b.components {
		key, err := b.key(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("hash %s: %w", c.name, err)
		}
		items[i] = item{component: c, key: key}
	}
	return items, nil
}

// missing returns the items that the store has not, or has damaged; explain says so for the latter.
func (b *builder) missing(items []item, explain bool) []item {
	var missing []item
	for _, it := range items {
		err := b.store.check(it)
		if err == nil {
			continue
		}
		if explain && !errors.Is(err, fs.ErrNotExist) {
			b.say("%s in the cache is damaged and will be built again: %v", it.name, err)
		}
		missing = append(missing, it)
	}
	return missing
}

// buildMissing returns how many components it built: another build may have made them all while this one waited.
func (b *builder) buildMissing(ctx context.Context, items, missing []item) (int, error) {
	for _, it := range missing {
		if it.needsC {
			if err := checkC(ctx); err != nil {
				return 0, err
			}
		}
	}
	unlock, err := b.store.lock(ctx, func(holder string) {
		b.say("another build is at work%s: waiting for it", holder)
	})
	if err != nil {
		return 0, err
	}
	defer unlock()
	if err := b.store.sweep(); err != nil {
		return 0, err
	}
	missing = b.missing(items, true)
	if len(missing) == 0 {
		return 0, nil
	}
	b.announce(missing)
	for _, it := range missing {
		if err := b.build(ctx, it); err != nil {
			return 0, err
		}
	}
	return len(missing), nil
}

func (b *builder) announce(missing []item) {
	var names []string
	var cold, warm time.Duration
	for _, it := range missing {
		names = append(names, it.name)
		cold += it.cold
		warm += it.warm
	}
	b.say("building %s for the embedded cluster: about %s with an empty Go build cache on 2 cores (%d here), %s with a warm one",
		strings.Join(names, ", "), roughly(cold), runtime.NumCPU(), roughly(warm))
}

// build makes one component in a directory of its own and moves it to its place when it is whole.
func (b *builder) build(ctx context.Context, it item) error {
	stage, err := b.store.stage(it)
	if err != nil {
		return err
	}
	defer stage.discard()
	p := startProgress(b.stderr, b.inPlace, it.name)
	err = b.compile(ctx, it, stage, p)
	p.stop()
	if err != nil {
		return err
	}
	// Somebody may have edited the module while it compiled: what came out then is neither the old content nor the new.
	key, err := b.key(ctx, it.component)
	if err != nil {
		return fmt.Errorf("hash %s: %w", it.name, err)
	}
	if key != it.key {
		return fmt.Errorf("%s changed while it was built: build again", it.name)
	}
	size, err := stage.keep()
	if err != nil {
		return err
	}
	b.say("%s: built in %s, %d MB", it.name, roughly(p.elapsed()), (size+500_000)/1_000_000)
	return nil
}

// roughly prints a duration as a person would say it.
func roughly(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%d s", max(1, int(d.Round(time.Second).Seconds())))
	}
	if d < 3*time.Minute {
		return fmt.Sprintf("%.1f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}
