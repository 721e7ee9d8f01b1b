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
# Minutes of load.
export SOAK_MINUTES ?= 4

.PHONY: demo test test-fast test-spark test-stores test-servers test-long soak fuzz test-pyspark test-loaders lint format proto bench bench-tpch bench-start bench-changes bench-stores compatibility conflicts pylance-names surface docs clean java java-check dist sbom

demo: java $(VENV)/.test
	$(BIN)/python examples/quickstart.py

PARALLEL := -q -n $(WORKERS) --dist worksteal
PYTEST := $(BIN)/python -m pytest $(PARALLEL)

test: java $(VENV)/.test
	$(PYTEST) --durations=40 --durations-min=5 tests

# Without Spark, servers and other processes, and without the matrices and the random runs.
test-fast: $(VENV)/.test
	$(PYTEST) -m "not slow" tests

# All tests that start Spark.
test-spark: java $(VENV)/.test
	$(PYTEST) -m spark tests

# All tests that start a server in place of a store.
test-stores: $(VENV)/.test
	$(PYTEST) -m stores tests

# What users do with tables, also on S3 servers that need an environment of their own, on a Ceph gateway if its packages are installed
# (tests/support/stores/ceph.py), and on the server that LANCE_SPARK_TEST_S3 names.
test-servers: $(VENV)/.test
	$(PYTHON) -m venv build/servers
	build/servers/bin/python -m pip install -q ministack nanio
	PATH="$(CURDIR)/build/servers/bin:$$PATH" LANCE_SPARK_TEST_SERVERS=all $(BIN)/python -m pytest -q -rs tests/storage/test_servers.py

# Ten thousand random tables, 2,000 queries, 500 sequences of SQL statements, 1,000 histories, 50,000 predicates, 500 on each indexed column, 2,000 sequences of
# changes, 1,000 tables as columns, also on a cluster and by Spark Connect, 20,000 hostile inputs, a thousand damages to each page; all cells of the matrices of types;
# all changes of tables of all releases; 2 GiB of blobs through a small executor; ten thousand tasks; all races of two
# Spark jobs; LanceTable on a cluster and in a session with two million rows; the page of SQL in every client;
# tables of 100,000 versions and of a million fragments; a stream of 24 hours.
test-long: java $(VENV)/.test
	LANCE_SPARK_TEST_TABLES=10000 LANCE_SPARK_TEST_CELLS=all LANCE_SPARK_TEST_HISTORIES=1000 LANCE_SPARK_TEST_FILTERS=50 LANCE_SPARK_TEST_INDEX_PREDICATES=500 LANCE_SPARK_TEST_ROW_ID_HISTORIES=60 LANCE_SPARK_TEST_RELEASES=1.0.4,4.0.1,8.0.1 $(PYTEST) tests/interop
	LANCE_SPARK_TEST_HISTORIES=100 $(PYTEST) tests/change_feed
	LANCE_SPARK_TEST_CELLS=all LANCE_SPARK_TEST_QUERIES=2000 $(BIN)/python -m pytest -q tests/spark/pushdown/test_rule_queries.py
	LANCE_SPARK_TEST_STATEMENTS=500 $(BIN)/python -m pytest -q tests/spark/sql/test_random_statements.py
	LANCE_SPARK_TEST_CELLS=all LANCE_SPARK_TEST_PREDICATES=50000 $(PYTEST) tests/interop/predicates
	LANCE_SPARK_TEST_CELLS=all LANCE_SPARK_TEST_FLIPS=1000 LANCE_SPARK_SEQUENCES=2000 LANCE_SPARK_TEST_INPUTS=20000 $(PYTEST) tests/encoding tests/file/v0_1 tests/mutations/test_random_changes.py tests/hostile tests/table/test_hostile.py
	LANCE_SPARK_TEST_CELLS=all $(PYTEST) tests/concurrent tests/crash tests/faults tests/file tests/mutations tests/proto tests/scan tests/storage tests/table tests/upgrade
	$(BIN)/python -m pytest -q -s tests/table/long_growth.py tests/spark/table/long_stream.py
	LANCE_SPARK_TEST_COLUMNS=1000 LANCE_SPARK_TEST_FLIPS=20000 $(BIN)/python -m pytest -q tests/spark/jvm tests/spark/pushdown/test_random_tables.py
	LANCE_SPARK_RELEASE_CHANGES=1 $(BIN)/python -m pytest -q -n $(WORKERS) tests/interop/test_release_changes.py
	$(BIN)/python -m pytest -q tests/spark/long_blobs.py tests/spark/long_tasks.py
	LANCE_SPARK_TEST_COLUMNS=1000 $(BIN)/python -m pytest -q tests/spark/long_random_tables.py
	LANCE_SPARK_TEST_CLUSTER_ROWS=2000000 $(BIN)/python -m pytest -q tests/spark/table/test_cluster.py
	LANCE_SPARK_TEST_PAIRS=all $(BIN)/python -m pytest -q tests/spark/table/test_pairs.py
	LANCE_SPARK_TEST_CELLS=all LANCE_SPARK_TEST_ROWS=2000000 $(BIN)/python -m pytest -q tests/spark

# Faults by the thousand, load for minutes, processes of Spark killed, hostile inputs: one table in the end, and an error if anything was lost. An hour of load:
# make soak SOAK_MINUTES=60. See tests/soak/__main__.py for the rest.
soak: java $(VENV)/.test
	$(BIN)/python -m tests.soak

# Coverage-guided inputs for every parser, so many seconds for each; what does harm is saved below build/hostile/.
fuzz: $(VENV)/.fuzz
	$(BIN)/python -m tests.hostile.fuzz --seconds $(or $(SECONDS),60) $(TARGETS)

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

# The loaders of PyTorch and Hugging Face, in an environment that is thrown away: their packages take gigabytes. TORCH chooses another build.
test-loaders:
	rm -rf build/loaders
	$(PYTHON) -m venv build/loaders
	build/loaders/bin/python -m pip install -q $(or $(TORCH),torch)
	build/loaders/bin/python -m pip install -q -e '.[test,torch,huggingface]'
	build/loaders/bin/python -m pytest -q tests/loaders
	rm -rf build/loaders

# Builds the wheel and the source distribution twice, compares the bytes, checks them, tries them on each Python that is found, and writes
# lists of what they need (SBOM). See tests/release/__main__.py.
dist: java
	$(PYTHON) -m tests.release

# Only the lists of what the package needs, as CycloneDX.
sbom:
	$(PYTHON) -m tests.release --only sbom

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(VENV)/.dev
	$(BIN)/python protos/generate.py

# Writes docs/reference/compatibility.md, which the tests hold to what is so.
compatibility: $(VENV)/.test
	$(BIN)/python -m tests.interop.compatibility

# Writes docs/reference/conflicts.md, which the tests hold to what is so.
conflicts: java $(VENV)/.test
	$(BIN)/python -W ignore -m tests.interop.conflicts

# Builds the documentation site into build/site. A broken link is an error.
docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

# Writes docs/reference/pylance.md: what this package has for each public name of pylance.
pylance-names: $(VENV)/.test
	$(BIN)/python -W ignore -m tests.support.pylance_names.page

# Writes tests/public_surface.txt: the names, signatures and options of the public API.
surface: $(VENV)/.test
	$(BIN)/python -m tests.support.public_surface

# The first statements of new processes, beside Parquet.
bench-start: java $(VENV)/.bench
	$(BIN)/python benchmarks/start.py --only cold

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

# Changes of a table of 4 million rows: SQL, the local API, pylance, and Spark over Parquet.
bench-changes: java $(VENV)/.bench
	$(BIN)/python benchmarks/sql_changes.py --scale $(or $(SCALE),1)
	$(BIN)/python benchmarks/merge_growth.py --millions $(or $(MILLIONS),"4,40")

# The 22 queries of TPC-H, beside Parquet. Ten times the rows: make bench-tpch SCALE=10
bench-tpch: java $(VENV)/.bench
	$(BIN)/python benchmarks/tpch.py --scale $(or $(SCALE),1)

# The local API and Spark on an S3 server with delays, beside pylance. DELAY, MBPS and ONLY choose: make bench-stores DELAY=5,30 ONLY=filter,append
DELAYS = 5,30,100
bench-stores: java $(VENV)/.bench
	$(BIN)/python benchmarks/stores.py --delay "$(or $(DELAY),$(DELAYS))" --mbps $(or $(MBPS),80) --only "$(ONLY)"

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name it with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -e '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[bench]'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[fuzz]'
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
