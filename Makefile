# Two commands do everything on a fresh Debian 12 machine with root, Go and gcc:
#   make experiment   the main job: a real cluster, a load, tables
#   make test         all checks
# Both install what is missing, or name it.

VERSION     := $(shell git describe --always --dirty 2>/dev/null || echo devel)
GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Static binaries: the target runs in an image with nothing else in it. The
# flags are those of clusters/embedded/build, so that packages which both need
# (client-go) are compiled once.
GOBUILD     := CGO_ENABLED=0 GOGC=800 $(GO) build -trimpath -gcflags=all=-dwarf=false -ldflags '-s -w -X main.version=$(VERSION)'
EXPERIMENT  ?= scale-in blue-green
# The full matrix.
EXPERIMENTS ?= scale-in scale-in-exit blue-green rolling-update node-scale-in node-loss pod-kill baseline
ARGS        ?=

.PHONY: all root build experiment nightly test unit lint e2e bench cluster clean prerequisites embedded

all: build

prerequisites:
	@.ci/prerequisites

# The embedded cluster's binaries. Nothing is done when none of their sources
# changed; see clusters/embedded/build.
embedded: prerequisites
	@$(GO) run ./clusters/embedded/build --out bin/embedded

build: embedded
	@$(GOBUILD) -o bin/lameduck ./cmd/lameduck
	@$(GOBUILD) -o bin/target ./cmd/target

root:
	@[ "$$(id -u)" = 0 ] || { echo "the embedded cluster needs root: run make as root, for example with sudo" >&2; exit 1; }

experiment: root build
	bin/lameduck run $(EXPERIMENT) $(ARGS)

nightly: root build
	bin/lameduck run $(EXPERIMENTS) $(ARGS)

cluster: root build
	bin/lameduck cluster up $(ARGS)

clean:
	@if [ -x bin/lameduck ]; then bin/lameduck cluster clean; fi
	rm -rf bin

test: build lint unit e2e

unit:
	$(GO) test -race ./...

lint:
	@unformatted=$$(gofmt -l cmd clusters docs experiments harness reports); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt: $$unformatted" >&2; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags e2e ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags e2e ./...

# End-to-end tests need root and bring up real embedded clusters, two at a time:
# each package's have names of their own, and most of a test is waiting.
e2e: build
	$(GO) test -tags e2e -run '^TestE2E' -p 2 -count 1 -timeout 25m -v ./cmd/... ./clusters/... ./harness/...

# Figures, not checks. A cluster is brought up twice: the second is warm.
bench: build
	$(GO) test -run '^$$' -bench Attack -benchtime 10x ./harness/load
	$(GO) test -run '^$$' -bench . ./harness/record ./reports ./cmd/target
	$(GO) test -run '^$$' -bench . -benchtime 5s ./clusters/alb/...
	$(GO) test -tags e2e -run '^$$' -bench '^BenchmarkE2E' -benchtime 1x -count 2 -timeout 25m -v ./clusters/embedded
