# Two commands for a newcomer: `make demo` and `make test`. Each makes its own environment in .venv first.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Spark starts its Python workers with this interpreter.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
# Twice the cores of CI: tests wait for servers, retries and other processes, and for Spark, whose
# driver, tasks and Python processes take turns.
WORKERS ?= 4
PYSPARKS ?= 4.0 4.1 4.2 4.3
# Tests start hundreds of Python processes, each of which would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-long test-pyspark test-versions test-tools test-cluster test-spark-suites lint format proto pages docs bench bench-tpch bench-tpcds bench-hits java java-check dist clean

demo: java $(VENV)/.demo
	$(BIN)/python examples/quickstart.py

PARALLEL := -q -n $(WORKERS) --dist worksteal
PYTEST := $(BIN)/python -m pytest $(PARALLEL)

test: java $(VENV)/.test
	$(PYTEST) --durations=40 --durations-min=5 tests

# Without Spark, servers and other processes, and without the matrices and the random runs.
test-fast: $(VENV)/.test
	$(PYTEST) -m "not slow" tests

# Ten thousand random tables, all cells of the matrices, random histories by the thousand, tables of
# 100,000 versions, streams of 24 hours, the page of SQL in every client: see tests/support/cells.py.
# Then a soak, on S3 servers and with loaders that need an environment of their own.
LONG := LANCE_SPARK_TEST_LONG=1 $(BIN)/python -m pytest -q
test-long: java $(VENV)/.test
	$(LONG) -n $(WORKERS) --dist worksteal tests --ignore=tests/spark
	$(LONG) -s tests/spark tests/spark/long_*.py tests/spark/table/long_stream.py tests/table/long_growth.py
	$(BIN)/python -m tests.soak
	$(PYTHON) -m venv build/servers
	build/servers/bin/python -m pip install -q ministack nanio
	PATH="$(CURDIR)/build/servers/bin:$$PATH" LANCE_SPARK_TEST_SERVERS=all $(BIN)/python -m pytest -q -rs tests/storage/test_servers.py
	$(PYTHON) -m venv build/loaders
	build/loaders/bin/python -m pip install -q torch -e '.[test,torch,huggingface]'
	build/loaders/bin/python -m pytest -q tests/loaders
	rm -rf build/loaders build/servers
	$(PYTHON) -m tests.tools

# The tests that start Spark on every minor version of it, each in an environment that is thrown away.
test-pyspark: java
	@failed=; for version in $(PYSPARKS); do \
	  echo "pyspark $$version"; env=build/pyspark-$$version; rm -rf $$env; \
	  $(PYTHON) -m venv $$env && \
	  $$env/bin/python -m pip install -q -e '.[test]' "pyspark==$$version.*" && \
	  PYSPARK_PYTHON=$(CURDIR)/$$env/bin/python $$env/bin/python -m pytest $(PARALLEL) \
	    tests/spark tests/test_examples.py || \
	  failed="$$failed $$version"; \
	  rm -rf $$env; \
	done; \
	[ -z "$$failed" ] || { echo "failed on pyspark$$failed"; exit 1; }

# Tests with the lowest versions that pyproject.toml allows, and on each newer Python that is found, in
# environments that are thrown away. VERSIONS='lowest 3.13' chooses. See tests/versions/__main__.py.
test-versions: java
	WORKERS=$(WORKERS) $(PYTHON) -m tests.versions $(VERSIONS)

# Tools that people run on Spark, each in environments that are thrown away. TOOLS=dbt chooses. Writes
# the results that the page docs/howto/other-tools.md shows.
test-tools: java
	$(PYTHON) -m tests.tools $(TOOLS)

# Spark programs on a standalone cluster whose workers see none of the driver's files, with executors
# that are killed; CASES=archives chooses. Linux, with the rights of root. See tests/cluster/__main__.py.
test-cluster: java $(VENV)/.test
	$(BIN)/python -m tests.cluster $(CASES)

# Tests of Spark's source with Lance in place of Parquet, and with Parquet. SPARK_SOURCE is a checkout of
# Spark at the tag of the installed pyspark; SUITES='inputs/group-by.sql pyspark.sql.tests.test_types'
# chooses, and OTHER_RELEASE=1 takes a checkout of another release. See tests/spark_suites/__main__.py.
test-spark-suites: java $(VENV)/.test
	$(BIN)/python -m tests.spark_suites $(if $(OTHER_RELEASE),--other-release) "$(SPARK_SOURCE)" $(foreach suite,$(SUITES),'$(suite)')

# Builds the wheel and the source distribution twice, compares the bytes, checks them, tries them on each Python that is found, and writes
# lists of what they need (SBOM). See tests/release/__main__.py.
dist: java
	$(PYTHON) -m tests.release

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(VENV)/.dev
	$(BIN)/python protos/generate.py

# Builds the documentation site into build/site. A broken link is an error.
docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

# Writes the pages that the tests hold to what is so: docs/reference/compatibility.md and conflicts.md,
# and tests/public_surface.txt with the names, signatures and options of the public API.
pages: java $(VENV)/.test
	$(BIN)/python -m tests.support.public_surface
	$(BIN)/python -W ignore -m tests.interop.conflicts
	$(BIN)/python -m tests.interop.compatibility

bench: java $(VENV)/.bench
	$(BIN)/python benchmarks/scan.py
	$(BIN)/python benchmarks/write.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/encodings.py
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/changes.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/lance_table.py
	$(BIN)/python benchmarks/table.py
	$(BIN)/python benchmarks/wide.py
	$(BIN)/python benchmarks/wide_spark.py
	$(BIN)/python benchmarks/many_joins.py

# The 22 queries of TPC-H, or the 99 of TPC-DS, beside Parquet: make bench-tpcds SCALE=10 ONLY=9,64
bench-tpch bench-tpcds: bench-tpc%: java $(VENV)/.bench
	$(BIN)/python benchmarks/tpc.py $* --scale $(or $(SCALE),1) --only "$(ONLY)"

# 43 queries of a wide table of web hits, beside Parquet: make bench-hits SCALE=10 for ten million rows
bench-hits: java $(VENV)/.bench
	$(BIN)/python benchmarks/hits.py --scale $(or $(SCALE),1) --only "$(ONLY)"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name it with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }

# Python compiles the modules that the demo imports: to compile all of them takes longer than the
# installation. pyspark comes as a source archive, of which pip makes a wheel for its cache. To
# compress the wheel takes twenty seconds and saves nothing: its jars are compressed.
$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --no-compile \
	  --config-settings=--build-option=--compression=stored -e '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[test]'
	@touch $(VENV)/.demo $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $@

# A page has a row for each name of pylance, which is one of the packages of the tests.
$(VENV)/.docs: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[bench]'
	@touch $@

# Compiles the Java classes by a JDK, with its warnings, against the jars of each release of Spark.
java-check: $(VENV)/.test
	$(BIN)/python -m tests.support.java_check $(or $(PYSPARKS),4.0 4.1 4.2 4.3)

java:
	@java=java; [ -z "$$JAVA_HOME" ] || java="$$JAVA_HOME/bin/java"; \
	  command -v "$$java" >/dev/null || \
	  { echo "Spark needs Java 17 or newer, and there is none: apt-get install openjdk-17-jre-headless"; exit 1; }; \
	  version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -1); \
	  [ -z "$$version" ] || [ "$$version" -ge 17 ] || \
	  { echo "Spark needs Java 17 or newer, this is $$version: apt-get install openjdk-17-jre-headless"; exit 1; }

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
