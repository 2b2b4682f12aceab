# The ways to use this repository. `make` alone explains them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help bootstrap test-bootstrap configure build everything benches tested test lab check sanitize train quick-start-corpus quick-start-run trial soak fuzz \
        processors parity integrations wheel release docs first-day notebooks minutes bench bench-balance bench-published bench-watching trial-slow gpu-kit wheel-elsewhere dockerfile pictures paper long-context rivals \
        bench-transformers bench-experts bench-generate bench-serve bench-heads retrieval bench-fidelity bench-saving bench-corpus format tidy clean

JOBS ?= $(shell nproc)
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
BUILD := build
SLUICE := $(BUILD)/sluice
DEPS := $(or $(SLUICE_DEPS),$(HOME)/.cache/sluice)
SOURCES = $(shell git ls-files '*.h' '*.cpp' '*.cu')
RUN_TESTS = $(PYTHON) -B tests/run.py --build $(BUILD) --jobs $(JOBS) $(if $(ONLY),--only '$(ONLY)') $(if $(SEED),--seed $(SEED))
CTEST := ctest --output-on-failure --no-tests=error

help: ## Print this
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "make %-18s %s\n", $$1, $$2}'

bootstrap: ## Install what is missing (tools/bootstrap --check only reports)
	@tools/bootstrap

$(BUILD)/build.ninja: | bootstrap
	cmake --preset release

configure: bootstrap $(BUILD)/build.ninja

build: configure ## Make build/sluice
	cmake --build $(BUILD) -j $(JOBS) --target sluice

everything: configure ## Make the program, the Python package, all tests and benchmarks
	cmake --build $(BUILD) -j $(JOBS) --target all lab_tests benches

benches: configure ## Make the benchmarks
	cmake --build $(BUILD) -j $(JOBS) --target benches

tested: configure # what `make test` runs
	cmake --build $(BUILD) -j $(JOBS) --target all $(if $(ALL),lab_tests benches)

test-bootstrap: ## Install what is missing, and what tests run beside: launchers, a MILP solver, transformers
	@tools/bootstrap --test

# ALL=1: everything, and whole tables instead of samples; with SAMPLE=1 samples all the same. ONLY=REGEX: tests with such names. SEED=N draws the samples.
test: test-bootstrap tested ## Build, run the tests whose inputs changed since they passed (ALL=1: everything), say what was skipped
	$(RUN_TESTS) $(if $(ALL),--all) $(if $(SAMPLE),--sample)

lab: test-bootstrap ## Build and run lab's tests: what Sluice is compared with
	$(MAKE) configure && cmake --build $(BUILD) -j $(JOBS) --target lab_tests
	$(RUN_TESTS) -- -C lab -L '^lab$$'

check: ## Run the checks of the repository itself: layering, sizes, style, documentation
	@status=0; for check in tests/*_test.py; do echo "$$check"; $(PYTHON) -B $$check || status=1; done; exit $$status

sanitize: bootstrap ## Run the tests of the modules without libtorch under ASan+UBSan and TSan
	for preset in asan tsan; do \
	  cmake --preset $$preset && cmake --build build-$$preset -j $(JOBS) --target all lab_tests && \
	  $(CTEST) --test-dir build-$$preset -C lab -j $(JOBS) -LE repository || exit 1; \
	done

# The corpus of the quick start: this machine's Python standard library, cut where two blank lines stand
# (between top-level definitions).
corpora/stdlib/corpus.idx:
	@test -x $(SLUICE) || $(MAKE) build
	$(SLUICE) corpus build \
	  "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')" \
	  --out corpora/stdlib --train-tokenizer 2048 --delimiter $$'\n\n\n'

quick-start-corpus: corpora/stdlib/corpus.idx

# An interrupted run continues; to begin anew, remove runs/quickstart.
quick-start-run:
	$(SLUICE) train --config examples/quickstart.toml --nproc 4 --resume auto

train: ## Install, build, make the quick start's corpus and train on it, 4 ranks; says where the minutes go
	@$(PYTHON) -B tools/quick_start.py $(MAKE) BUILD=$(BUILD) JOBS=$(JOBS)

# OPTIONS are those of `python3 tests/fault_injection --help`: OPTIONS='--only "kill -9" --seed 2'.
trial: build ## Strike real runs with every kind of fault at every phase (an hour)
	SLUICE=$(SLUICE) $(PYTHON) -B tests/fault_injection $(OPTIONS)

trial-slow: build ## Make ranks slow for real: stopped, held to a share of a processor, behind a slow link (ten minutes of silence, too)
	SLUICE=$(SLUICE) $(PYTHON) -B tests/fault_injection/slow.py --minutes 10

soak: everything ## Run the long tests: kills, random faults, random plans, plans against the checker (two hours)
	$(CTEST) --test-dir $(BUILD) -C soak -L soak

# Each holds libtorch and oneDNN to what an older processor has: one more run of the tests that compute with them. Waits
# are passive, as the program makes them where threads are more than cores.
PROCESSORS := ATEN_CPU_CAPABILITY=default,ONEDNN_MAX_CPU_ISA=SSE41,OMP_NUM_THREADS=1 \
              ATEN_CPU_CAPABILITY=avx2,ONEDNN_MAX_CPU_ISA=AVX2,OMP_NUM_THREADS=3,OMP_WAIT_POLICY=passive \
              ONEDNN_MAX_CPU_ISA=AVX512_CORE
processors: everything ## Run the tests as other processors would: older instruction sets, other thread counts
	@for setting in $(PROCESSORS); do \
	  echo "$$setting"; env $${setting//,/ } $(CTEST) --test-dir $(BUILD) -C lab -j $(JOBS) -L 'libtorch|integration' || exit 1; \
	done

fuzz: bootstrap ## Read and use 10^6 damaged inputs and 10^5 requests under ASan+UBSan, 1,000 messages beside h11, 5,000 bodies and 100,000 clients of a server, also under ASan, and 5,000 commands on damaged files
	cmake --preset asan && cmake --build build-asan -j $(JOBS) --target input_fuzz request_fuzz
	ASAN_OPTIONS=max_allocation_size_mb=256:allocator_may_return_null=1:malloc_context_size=1:quarantine_size_mb=16 \
	  build-asan/input_fuzz --count 1000000
	build-asan/request_fuzz --count 100000
	$(MAKE) build && cmake --build $(BUILD) -j $(JOBS) --target start_once
	tools/bootstrap --parity
	SLUICE=$(SLUICE) $(DEPS)/parity/bin/python -B tests/fuzz/framings.py --count 1000
	SLUICE=$(SLUICE) $(PYTHON) -B tests/fuzz/bodies.py --count 5000
	cmake --preset asan-serve && cmake --build build-asan-serve -j $(JOBS) --target sluice
	SLUICE=build-asan-serve/sluice $(PYTHON) -B tests/fuzz/serving.py --count 100000
	SLUICE=$(SLUICE) START_ONCE=$(BUILD)/tests/fuzz/libstart_once.so \
	  $(PYTHON) -B tests/fuzz/command_fuzz.py --count 5000 --jobs $(JOBS)

determinism: bootstrap ## Compare the plans of four builds: g++ and clang++, without and with all optimisation
	@tools/bootstrap --developer
	$(PYTHON) -B tests/determinism/determinism.py --folder build-determinism --jobs $(JOBS)

parity: everything ## Compare with transformers and torch.optim (installs 4 GB the first time)
	tools/bootstrap --parity
	$(CTEST) --test-dir $(BUILD) -C parity -L parity

integrations: everything ## Run the Python package inside released Megatron, verl, miles, TRL, transformers and accelerate
	tools/bootstrap --integrations
	$(CTEST) --test-dir $(BUILD) -C integrations -L integrations

bench-balance: everything ## Time steps balanced by Megatron, accelerate, miles, verl and by Sluice (after `make integrations`)
	for program in megatron slime torch verl; do \
	  PYTHONPATH=$(BUILD)/python $(DEPS)/integrations-$$program/bin/python -B bench/balance.py $$program || exit 1; \
	done >$(BUILD)/balance.jsonl
	PYTHONPATH=$(BUILD)/python $(DEPS)/integrations-torch/bin/python -B bench/balance.py table \
	  <$(BUILD)/balance.jsonl >bench/results/balance.md

wheel: everything ## Build the Python package's wheel, install it in a new environment and test it there
	$(CTEST) --test-dir $(BUILD) -C wheel -L wheel

release: build ## Make dist/: source archive, the planner's wheel, the programs' wheel, a container recipe; install and use each
	$(DEPS)/tools/bin/python -B packaging/release.py --build $(BUILD) --out dist
	$(CTEST) --test-dir $(BUILD) -C release -L release

wheel-elsewhere: ## Install the wheel that build/wheels has on a bare Debian 11, as root (CHROOT), and run docs/python.md there
	tools/bare_machine run debian:11 $(or $(CHROOT),$(error name a new folder: make wheel-elsewhere CHROOT=/var/tmp/bullseye)) \
	  --bind $(CURDIR):/repository sh /repository/tests/python/on_bare_debian.sh

dockerfile: ## Execute the Dockerfile's steps in a chroot, as root (CHROOT: a new folder; needs debootstrap)
	tools/bare_machine dockerfile $(or $(CHROOT),$(error name a new folder: make dockerfile CHROOT=/var/tmp/sluice-docker))

pictures: build ## Make the documentation's pictures in light and dark (needs Chromium)
	SLUICE=$(SLUICE) tools/pictures

# OPTIONS are those of `python3 bench/minutes.py --help`: OPTIONS='--only start'.
minutes: bootstrap ## Measure what make train, make test and changes cost, in a fresh clone without a compiler cache (three hours)
	$(PYTHON) -B bench/minutes.py $(OPTIONS)

bench: everything ## Run the benchmarks
	@for benchmark in $(BUILD)/*_bench; do $$benchmark || exit 1; done

gpu-kit: everything ## Pack what proves and measures this build on a bare machine with a GPU (docs/gpu.md)
	tools/gpu_kit pack

# Seconds for which FlexSP's MILP is solved for each micro-batch; 0: groups come from its local search alone.
MILP_SECONDS ?= 60

paper: everything ## Simulate the published evaluation (resumes; hours, ten minutes with MILP_SECONDS=0) and write docs/evaluation.md
	$(BUILD)/paper_evaluation --milp-seconds $(MILP_SECONDS)
	$(PYTHON) -B lab/evaluation/paper_page.py

long-context: everything ## Simulate contexts of 1M and 2M tokens (resumes; a quarter of an hour of one core) and write docs/long_context.md
	$(BUILD)/long_context
	$(PYTHON) -B lab/evaluation/long_context_page.py

rivals: everything ## Time rivals' plans beside Sluice's on 500 random batches (resumes; hours, half an hour with MILP_SECONDS=0)
	$(BUILD)/rivals --milp-seconds $(MILP_SECONDS) --out $(BUILD)/rivals.jsonl
	$(PYTHON) -B lab/evaluation/rivals_page.py --results $(BUILD)/rivals.jsonl

bench-fidelity: build corpora/stdlib/corpus.idx ## Simulated beside real steps of the quick start, profiled on this machine
	SLUICE=$(SLUICE) $(PYTHON) -B bench/fidelity.py

bench-saving: build ## How long saving holds training up, beside torch.distributed.checkpoint's async save
	tools/bootstrap --parity
	SLUICE=$(SLUICE) $(DEPS)/parity/bin/python -B bench/saving.py

bench-corpus: build ## Tokens a second of corpus build beside datasets.map and plain tokenizers, on a quiet machine (10 minutes)
	tools/bootstrap --test
	SLUICE=$(SLUICE) $(PYTHON) -B bench/record.py corpus

bench-generate: build ## Tokens said a second beside transformers' generate, on a quiet machine (5 minutes)
	tools/bootstrap --parity
	HF_HUB_OFFLINE=1 $(DEPS)/parity/bin/python -B bench/generation.py --sluice $(SLUICE) --out bench/results/generation.json

# OPTIONS are those of bench/heads.py: OPTIONS='--only reward --rounds 1'.
bench-heads: build ## Reward models and embeddings trained beside TRL's and sentence-transformers' trainers, on a quiet machine (six minutes)
	tools/bootstrap --heads
	HF_HUB_OFFLINE=1 $(DEPS)/integrations-heads/bin/python -B bench/heads.py --sluice $(SLUICE) --results bench/results/heads.md $(OPTIONS)

bench-serve: build ## What clients of `serve` wait for under load, beside the generator without HTTP, on a quiet machine (3 minutes)
	$(PYTHON) -B bench/serving.py --sluice $(SLUICE) --results bench/results/serving.md

# A run of before stays: remove runs/retrieval, or name another folder, OPTIONS='--folder runs/retrieval2'.
retrieval: build ## Train an embedding model on docstrings and functions of Python's standard library, and find unseen ones (five minutes)
	$(PYTHON) -B examples/retrieval/retrieval.py --sluice $(SLUICE) $(OPTIONS)

rl: build ## Imitate a teacher, then do better by reward alone, and by a reward that a model learnt, 2 ranks (four minutes)
	$(PYTHON) -B bench/reinforcement.py --sluice $(SLUICE) --seeds 1 --only dapo 'ppo, learnt reward'

bench-rl: build ## The same with three seeds, four algorithms, and DAPO without each of its parts (ten minutes)
	$(PYTHON) -B bench/reinforcement.py --sluice $(SLUICE) --out bench/results/reinforcement.json

distil: build ## Distil a teacher into a smaller model, beside the same model on the documents' own tokens (a minute)
	$(PYTHON) -B bench/distillation.py --sluice $(SLUICE) --seeds 1 --only fine-tuning forward_kl

bench-published: everything ## Steps that others published beside the same steps simulated (a minute)
	$(PYTHON) -B bench/record.py published

bench-watching: everything ## Who is named when a rank, a link or a host is slow, in virtual time (20 minutes)
	$(PYTHON) -B bench/record.py watching

bench-experts: everything ## Mixtures of experts planned on GPUs, routed unevenly, and trained beside plain transformers loops (15 minutes)
	$(PYTHON) -B bench/record.py experts imbalance
	tools/bootstrap --parity
	HF_HUB_OFFLINE=1 $(DEPS)/parity/bin/python -B bench/transformers_throughput.py --sluice $(SLUICE) --only experts \
	  --out bench/results/experts.json

bench-transformers: build ## Throughput beside plain transformers loops, on a quiet machine (10 minutes)
	tools/bootstrap --parity
	HF_HUB_OFFLINE=1 $(DEPS)/parity/bin/python -B bench/transformers_throughput.py --sluice $(SLUICE) \
	  --out bench/results/transformers_throughput.json

format: ## Format the sources in place
	@tools/bootstrap --developer
	clang-format -i $(SOURCES)

tidy: configure ## Run clang-tidy
	@tools/bootstrap --developer
	cmake --preset release -B build-tidy -DSLUICE_UNITY=OFF  # so that each file has a command of its own
	run-clang-tidy -quiet -p build-tidy -j $(JOBS) '$(CURDIR)/(src|cli)/.*'

first-day: everything ## Run every command of docs/first_day.md (ONLY='4|9': sections; half an hour)
	$(CTEST) --test-dir $(BUILD) -C first-day -L first-day

notebooks: everything ## Execute the notebooks of examples/notebooks
	tools/bootstrap --docs
	$(CTEST) --test-dir $(BUILD) -C notebooks -L notebooks

docs: ## Build the documentation's site in build/site; a broken link fails
	tools/bootstrap --docs
	$(DEPS)/docs/bin/python -B tools/docs_site.py --out $(BUILD)/site

clean: ## Remove what the build made (not corpora, runs or $SLUICE_DEPS)
	rm -rf build build-tidy build-asan build-tsan build-determinism dist
