# One command to try Fawn (run), one to check it (test). Everything is installed into .venv, except bubblewrap, which comes
# from the system's package manager if that does not need a password.

PYTHON ?= python3
BIN := .venv/bin
CODE := fawn bot channels agent sandbox catalogue
# What check runs, and test not again.
CHECKED := tests/test_docs.py tests/test_repository.py tests/test_catalogue.py
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make lock" uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url
SUITE = $(BIN)/python -m tests.support.costs -q --dist worksteal $(CHECKED:%=--ignore=%)
SHARE = $(HOME)/.local/share
FISH = $(HOME)/.config/fish/completions
EXTRAS ?= # optional packages, such as EXTRAS="anthropic ddgs"
CHANNELS ?= $(shell cat .venv/.channels 2>/dev/null) # those that are used, such as CHANNELS="slack"; "all" or nothing: all
ALL_CHANNELS := discord feishu matrix slack telegram
CHANNEL_LOCKS := $(patsubst %,packaging/extras/%.lock,$(or $(filter-out all,$(CHANNELS)),$(ALL_CHANNELS)))
LOCKED_EXTRAS := $(patsubst packaging/extras/%.lock,%,$(wildcard packaging/extras/*.lock))
ifneq ($(filter-out mcp $(LOCKED_EXTRAS),$(EXTRAS)),)
$(error There is no extra "$(filter-out mcp $(LOCKED_EXTRAS),$(EXTRAS))". There are: $(LOCKED_EXTRAS))
endif
# What was installed once stays up to date with its lock.
WANTED_EXTRAS := $(sort $(filter $(LOCKED_EXTRAS),$(EXTRAS) $(patsubst .venv/.extra-%,%,$(wildcard .venv/.extra-*))))

# Locks of what is installed: that of every installation, and what the channels add.
RUNTIME_LOCKS := requirements.lock $(CHANNEL_LOCKS)

.PHONY: FORCE help install uninstall run setup skills dev check types rules quick test suite long costs bench mutants docs schema words lock release fixture clean

run: setup ## set everything up, then chat on this terminal (and run every configured channel)
	@$(BIN)/fawn run

help: ## list what make can do
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 10

install: setup ## put `fawn` on your PATH, with its completion and man page: files in ~/.local
	@mkdir -p $(HOME)/.local/bin $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(FISH)
	@ln -sf "$(CURDIR)/$(BIN)/fawn" $(HOME)/.local/bin/fawn
	@$(BIN)/fawn completion man >$(SHARE)/man/man1/fawn.1
	@$(BIN)/fawn completion bash >$(SHARE)/bash-completion/completions/fawn
	@$(BIN)/fawn completion zsh >$(SHARE)/zsh/site-functions/_fawn
	@$(BIN)/fawn completion fish >$(FISH)/fawn.fish
	@case ":$(PATH):" in *:$(HOME)/.local/bin:*) echo "fawn is on your PATH.";; \
		*) echo "Add $(HOME)/.local/bin to your PATH: export PATH=\"\$$HOME/.local/bin:\$$PATH\"";; esac

uninstall: ## remove what `make install` put there; configuration and data stay
	@rm -f $(HOME)/.local/bin/fawn $(SHARE)/man/man1/fawn.1 $(SHARE)/bash-completion/completions/fawn \
		$(SHARE)/zsh/site-functions/_fawn $(FISH)/fawn.fish

setup: .venv/.runtime $(WANTED_EXTRAS:%=.venv/.extra-%) .venv/.bubblewrap ## install what the service needs, with EXTRAS="anthropic ddgs" more

skills: .venv/.skills ## install the packages of the shipped skills for sandboxes of bubblewrap (330 MB)

dev: setup .venv/.dev .venv/.clients .venv/.skills .venv/.synapse ## and install what the tests need

.venv/.python:
	@command -v $(PYTHON) >/dev/null || { echo "Fawn needs Python 3.11 or newer: apt install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Fawn needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "Python's venv module is missing. Install it and try again: apt install python3-venv"; exit 1; }
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/.channels: FORCE | .venv/.python
	@echo "$(strip $(CHANNELS))" | cmp -s - $@ || echo "$(strip $(CHANNELS))" >$@

.venv/.runtime: .venv/.python .venv/.channels $(RUNTIME_LOCKS) pyproject.toml
	@echo "Installing Fawn into .venv (once; about a minute) …"
	@packaging/install $(RUNTIME_LOCKS)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q -j 0 $(CODE)
	@echo "Done. The program is .venv/bin/fawn; make install puts it on your PATH."
	@touch $@

.venv/.extra-%: packaging/extras/%.lock .venv/.runtime
	@echo "Installing the extra $* …"
	@packaging/install requirements.lock $<
	@touch $@

.venv/.dev: .venv/.runtime requirements-dev.lock
	@echo "Installing what the tests need …"
	@packaging/install requirements-dev.lock
	@$(BIN)/python -m compileall -q -j 0 contracts tests
	@touch $@

.venv/.clients: tests/fakes/clients/package-lock.json | .venv/.python # second clients that check the fake platforms
	@mkdir -p .venv/clients && cp tests/fakes/clients/package.json tests/fakes/clients/package-lock.json .venv/clients/
	@if command -v npm >/dev/null; then npm ci --silent --ignore-scripts --no-audit --no-fund --prefix .venv/clients; \
		else echo "Without Node.js the tests with second clients are skipped: apt install nodejs npm"; fi
	@touch $@

.venv/.skills: requirements-skills.lock packaging/skill-packages | .venv/.python # what scripts of skills import
	@packaging/skill-packages
	@touch $@

.venv/.synapse: requirements-synapse.lock | .venv/.python # a real Matrix server, with dependencies of its own
	@echo "Installing a Matrix server for the tests …"
	@rm -rf .venv/synapse
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile --no-deps --require-hashes \
		--target .venv/synapse -r requirements-synapse.lock
	@$(BIN)/python -m compileall -q -j 0 .venv/synapse >/dev/null || true
	@touch $@

.venv/.bubblewrap: packaging/bubblewrap | .venv/.python
	@packaging/bubblewrap
	@touch $@

check: dev ## format, lint, types, import contracts, docs
	@$(MAKE) --no-print-directory -j 2 types rules

types: dev
	$(BIN)/mypy

rules: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q $(CHECKED)

quick: dev ## run the fast unit tests, 4,500; they start neither a service nor a sandbox
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4 --dist worksteal -m "not slow and not long" tests/unit/agent tests/unit/bot tests/unit/channels

test: dev ## check, then every test of less than 1.5 CPU seconds; a failed check does not hide what the tests say
	@checked=0; $(MAKE) -j 2 check .venv/.collected || checked=1; $(MAKE) suite && [ $$checked = 0 ]

suite: dev .venv/.collected ## run the tests that check leaves out, six at a time: most of them wait
	$(SUITE) -n 6 -m "not long"

long: dev .venv/.collected ## run the tests of 1.5 CPU seconds and more
	$(SUITE) -n 4 -m long

costs: dev .venv/.collected ## measure all tests and write what they cost, by which they are marked and ordered
	FAWN_TEST_COSTS=1 $(SUITE) -n 4

# The tests are compiled once (make test does it while mypy needs one core): each worker would do it again.
.venv/.collected: $(wildcard tests/*.py tests/*/*.py tests/*/*/*.py contracts/*.py) | .venv/.dev
	@$(BIN)/python -m pytest -q --collect-only >/dev/null || true # the run itself says what is wrong
	@touch $@

bench: dev ## measure medians and ratios against the floor; ARGS=--full for full sizes
	$(BIN)/python -m bench $(ARGS)

mutants: dev ## plant one-line faults in a copy of the core and name those that no test catches; ARGS="--area rights --count 20"
	$(BIN)/python -m bench.mutants $(ARGS)

docs: setup ## generate docs/configuration.md, the index of the decisions and contracts/api.txt
	$(BIN)/python -c "from bot.config.reference import settings_page; open('docs/configuration.md', 'w').write(settings_page())"
	$(BIN)/python -m tests.support.decision_index
	$(BIN)/python -m tests.support.extension_api

schema: dev ## generate bot/database/schema.sql from the migrations
	$(BIN)/python -m tests.support.schema_file

words: dev ## collect new sentences into catalogue/zh.po, to be translated there
	@$(BIN)/pybabel -q extract --no-location --sort-output --no-wrap -o .venv/words.pot $(CODE)
	@$(BIN)/pybabel -q update -l zh --omit-header --no-fuzzy-matching --ignore-obsolete --no-wrap -i .venv/words.pot -o catalogue/zh.po
	@$(BIN)/python -m pytest -q tests/test_catalogue.py

release: dev ## build wheel, sdist, SBOM, licences and signed checksums into dist/: SIGNING_KEY=FILE of SSH or minisign, or DRAFT=1
	@$(BIN)/python packaging/release

fixture: dev ## write the data of this version, on which later ones are tried: before a tag, where the schema has changed
	@$(BIN)/python -m tests.support.released_data

lock: ## update the pinned dependencies (needs uv); the runtime gets the tested versions
	$(COMPILE) --extra dev --extra all pyproject.toml -o requirements-dev.lock
	$(COMPILE) pyproject.toml -c requirements-dev.lock -o requirements.lock
	$(COMPILE) --group skills -o requirements-skills.lock
	$(COMPILE) --group synapse -o requirements-synapse.lock
	$(COMPILE) sandbox/docker/requirements.in -o sandbox/docker/requirements.lock
	@mkdir -p packaging/extras
	for extra in anthropic ddgs discord feishu matrix postgres slack telegram; do \
		$(COMPILE) --extra $$extra pyproject.toml -c requirements-dev.lock -o packaging/extras/$$extra.lock || exit 1; \
		awk -F= 'NR == FNR { if (/^[a-z0-9]/) base[$$1] = 1; next } /^[a-z0-9]/ { skip = $$1 in base } !skip' \
			requirements.lock packaging/extras/$$extra.lock >.extra.lock && mv .extra.lock packaging/extras/$$extra.lock; done

clean: ## remove everything that was built; data/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
