# Every target makes the virtual environment it needs. The two main targets:
#   make demo    train, export, serve, query and plot on real data
#   make test    the tests of both distributions, and lint
# CI also runs a part of `make test-all`, another one each time.

PYTHON ?= $(firstword $(shell command -v python3.11 python3 python))
VENV ?= .venv
RUN = $(VENV)/bin/python
# Byte code is compiled at the first import, as most files are never imported.
PIP = $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile
# Two processes; each takes whole files, whose tests share what they make.
SPREAD = -n 2 --dist loadfile
# Containers often forbid byte code. Each of the programs and servers that the
# tests start would then compile all of TensorFlow, for some seconds.
unexport PYTHONDONTWRITEBYTECODE
# Hides TensorFlow's notes on the machine's hardware, which look like errors.
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo test test-all test-part test-system lint format docs links bench release clean

demo: $(VENV)/demo
	$(RUN) examples/pronounce.py demo

# Lint runs beside the tests, and is shown after them.
test: $(VENV)/test
	@mkdir -p build; \
	$(MAKE) --no-print-directory lint > build/lint.txt 2>&1 & lint=$$!; \
	$(RUN) -m pytest $(SPREAD) -m "not full and not system"; tests=$$?; \
	wait $$lint; lint=$$?; cat build/lint.txt; \
	test $$tests -eq 0 -a $$lint -eq 0

# The parts of all tests. One run after the other, since a process keeps the
# memory of all that it has traced and compiled: two processes with half of the
# tests each filled 24 GB. `--deselect` takes the beginning of names.
PARTS = 1 2 3 4 5 6 7 8 9 10
PART_1 = tests/layers/test_mechanisms.py --dist load
PART_2 = tests/layers --deselect tests/layers/test_mechanisms.py tests/serving
PART_3 = tests/incremental tests/text tests/project
PART_4 = tests/decoding --deselect tests/decoding/test_translator
PART_5 = tests/export tests/viewing
PART_6 = tests/graph tests/diagnostics tests/training tests/examples \
	tests/reranking
PART_7 = tests/models/test_keras_hub*.py
PART_8 = tests/models/adopted --dist loadgroup
PART_9 = tests/models/test_hugging_face*.py tests/models/test_migration*.py
PART_10 = tests/decoding/test_translator*.py

# A part that fails does not stop the others. `make test-part PART=3 MARKS=full`
# leaves out of a part what `make test` runs.
test-all: lint
	@failed=""; \
	for part in $(PARTS); do \
	  $(MAKE) --no-print-directory test-part PART=$$part \
	    || failed="$$failed $$part"; \
	done; \
	if [ -n "$$failed" ]; then echo "Parts that failed:$$failed"; exit 1; fi

test-part: $(VENV)/test
	$(if $(PART_$(PART)),,$(error Give a part by PART=n, one of $(PARTS)))
	$(RUN) -m pytest $(SPREAD) $(PART_$(PART)) $(if $(MARKS),-m "$(MARKS)")

# What needs more than Python and make: a browser, Spark with Java, promtool,
# transformers on PyTorch, trained models in packages that pip installs.
# Skips what is missing, and says so.
test-system: $(VENV)/test
	$(RUN) -m pytest -m system -rs

lint: $(VENV)/test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) .docs/build.py

docs: $(VENV)/docs
	$(RUN) .docs/build.py

# All links of the site, those to other sites too.
links: docs
	$(PIP) linkchecker
	$(VENV)/bin/linkchecker --no-status --check-extern build/docs/index.html

format: $(VENV)/test
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

bench: $(VENV)/test
	$(RUN) tests/benchmarks/run.py
	$(RUN) tests/benchmarks/decoding.py
	$(RUN) tests/benchmarks/transformer.py
	$(RUN) tests/benchmarks/keras_hub_generate.py
	$(RUN) tests/benchmarks/hugging_face.py
	$(RUN) tests/benchmarks/additive.py
	$(RUN) tests/benchmarks/local.py
	$(RUN) tests/benchmarks/marginal.py
	$(RUN) tests/benchmarks/shortlist.py
	$(RUN) tests/benchmarks/output_sets.py
	$(RUN) tests/benchmarks/terms.py
	$(RUN) tests/benchmarks/adopted.py
	$(RUN) tests/benchmarks/onnx_runtime.py
	$(RUN) tests/benchmarks/xla.py
	$(RUN) tests/benchmarks/clients.py
	$(RUN) tests/benchmarks/endurance.py
	$(RUN) tests/benchmarks/hostile.py

# Both distributions in build/release, checked, and tried without the checkout;
# build/bom.json, a bill of materials. `make release VERSION=1.2.3` refuses others.
release: $(VENV)/made
	$(PIP) build check-wheel-contents cyclonedx-bom twine
	rm -rf build/release
	$(RUN) -m build --outdir build/release .
	$(RUN) -m build --outdir build/release serving
	$(RUN) -m twine check --strict build/release/*
	$(VENV)/bin/check-wheel-contents build/release/*.whl
	$(RUN) .ci/try_release.py build/release README.md build/bom.json $(VERSION)

clean:
	rm -rf $(VENV) build serving/build *.egg-info serving/*.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	touch $@

# One command installs both distributions from this checkout.
$(VENV)/demo: $(VENV)/made pyproject.toml serving/pyproject.toml
	$(PIP) -e ".[examples]" -e "./serving[server]"
	touch $@

$(VENV)/docs: $(VENV)/made pyproject.toml
	$(PIP) -e ".[docs]"
	touch $@

# With what the demo and the site need, so that pip resolves once.
$(VENV)/test: $(VENV)/made pyproject.toml serving/pyproject.toml
	$(PIP) -e ".[examples,plot,metrics,docs,test]" -e "./serving[server]"
	touch $(VENV)/demo $(VENV)/docs $@
