# Everything here works on a machine that has only make and Python 3.11 to 3.14: tools go into
# .tools/, the project's environment into .venv/. A second run of a target installs nothing again.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
SHELL := /bin/sh

# Pythons are found, never downloaded. An environment activated in the caller's shell is not used.
export UV_PYTHON_DOWNLOADS := never
unexport VIRTUAL_ENV UV_PROJECT_ENVIRONMENT
# Each process of the tests would compile all that it imports again; what is installed is compiled once.
unexport PYTHONDONTWRITEBYTECODE
export UV_COMPILE_BYTECODE := 1

PYTHON ?=
export PYTHON

UV := .tools/uv/bin/uv
BIN := .venv/bin
SAM := .tools/sam/bin/sam
export SAM_CLI_TELEMETRY := 0

# Scale of the TPC-H data in the demo: 0.1 is 600,000 rows.
SCALE ?= 0.1
# Test processes side by side, besides Spark's: more than two cores, for some tests wait for processes that they start.
JOBS ?= 3
# Of tests: short, wide or all (tests/tiers.py).
TIER ?= short
# Schedules of `make simulate`.
SEEDS ?= 1000
# Length and seed of `make soak`, `make soak-bank` and `make soak-commits`; CONTROL=1 runs the latter on a store that ignores If-Match.
MINUTES ?= 10
SEED ?= 1
CONTROL ?=
# Sizes of `make bench-metadata`.
FILES ?= 1000 10000 100000 1000000
# Mutants that `make mutants` tries.
NUMBER ?= 20
# Of the functions and their layer: x86_64 or arm64.
ARCHITECTURE ?= x86_64
BUILT := .aws-sam/build/template.yaml
# GRADUAL=1: functions are called by aliases, which an upgrade moves gradually (docs/DEPLOY.md).
GRADUAL ?=
# What `make sam-local` runs: a function and, unless EVENT says otherwise, that event of it. HOST_ADDRESS is the
# address of this machine for a container: `host-gateway` is Docker's name for it on Linux.
FUNCTION ?= ingest
LOCAL_ingest := IngestFunction normal
LOCAL_delete := DeleteFunction where
LOCAL_rewrite := RewriteFunction queue
LOCAL_compact := CompactFunction schedule
LOCAL_publish := PublishFunction schedule
LOCAL_catalog := CatalogFunction tables
LOCAL_collect_garbage := CollectGarbageFunction schedule
EVENT ?= events/$(FUNCTION).$(word 2,$(LOCAL_$(FUNCTION))).json
HOST_ADDRESS ?= host-gateway
SAM_LOCAL_ARGS ?=
# Further arguments of pytest, such as ARGS="-k tombstone".
ARGS ?=

READY := .venv/.ready
TOOLS := .tools/sam/.ready
ENGINES := .tools/engines/.ready
ICEBERG_JAVA := .tools/iceberg-java/.ready
EXAMPLES := .tools/examples/.ready
SECURITY := .tools/security/.ready
EMULATORS := .tools/emulators/.ready
SPARKS := .tools/spark40/.ready .tools/spark41/.ready .tools/spark42/.ready

##@ Try it
demo: $(READY) $(ENGINES) ## run the whole product on this machine and check every answer (SCALE=0.1)
	$(BIN)/inlay local demo --scale $(SCALE)

up: $(READY) ## keep the local AWS running: S3, SQS, the functions, the schedules
	$(BIN)/inlay local up

pipeline: $(READY) ## run the change-data pipeline on TPC-H orders through Spark, checked step by step
	@echo "loading Spark's and Inlay's libraries"
	$(BIN)/python -m pipelines.orders_demo $(ARGS)

pipeline-sql: $(READY) $(ICEBERG_JAVA) ## the same in plain Spark SQL, with Iceberg's runtime, through the catalog that takes commits
	$(BIN)/python -m pipelines.orders_sql $(ARGS) \
		--session ".tools/iceberg-java/bin/python tests/interop/by_spark.py rest"

##@ Work on it
test: $(READY) $(TOOLS) $(ENGINES) $(EXAMPLES) ## run the tests that a change waits for (TIER=short), Spark beside the others
	@.ci/side-by-side $(call quoted,$(SPARK_TESTS)) $(call quoted,$(PYTHON_TESTS))

test-wide: ; @$(MAKE) test TIER=wide ## run what shows the same in other settings: stores, engines, writers, seeds

test-all: ; @$(MAKE) test TIER=all ## run both, as a change must pass them

test-slow: $(READY) $(TOOLS) $(ENGINES) $(EXAMPLES) ## run the tests that take hours
	$(BIN)/python -m pytest tests -m slow $(ARGS)

test-python: $(READY) $(TOOLS) $(ENGINES) $(EXAMPLES) ## run the tests of a TIER that need no Java
	$(PYTHON_TESTS)

test-spark: $(READY) ## run the Spark tests of a TIER
	$(SPARK_TESTS)

quoted = '$(subst ','\'',$(1))'
TIER_short := not slow and not wide
TIER_wide := (wide or drawn) and not slow
TIER_all := not slow
# Of the examples that Hypothesis draws: the wide tier draws those that the short one does not.
DRAWN_short := 0.34
DRAWN_wide := 0.66
DRAWN_all := 1
CHOSEN = -m "$(TIER_$(TIER))" --drawn $(DRAWN_$(TIER)) $(ARGS)
PYTHON_TESTS = $(BIN)/python -m pytest tests --ignore=tests/spark -n $(JOBS) --dist loadfile --no-loadscope-reorder $(CHOSEN)
SPARK_TESTS = $(BIN)/python -m pytest tests/spark $(CHOSEN)

costs: $(READY) $(TOOLS) $(ENGINES) $(EXAMPLES) ## measure the CPU that test files take, and keep it (tests/costs.json)
	$(BIN)/python -m tests.cpu $(ARGS)

LEAST := .tools/least/bin/python
test-least: $(READY) ## run what talks to S3 and SQS on the oldest boto3 that pyproject.toml allows
	@python=$$(.ci/find-python) && $(UV) venv --quiet --clear --python "$$python" .tools/least
	@least=$$(sed -n 's/^    "boto3>=\(.*\)",/\1/p' pyproject.toml) && echo "boto3 $$least" && \
		$(UV) export --quiet --frozen --no-hashes --no-annotate --no-emit-project --no-default-groups \
			--group dev --all-extras --no-emit-package boto3 --no-emit-package botocore \
			--no-emit-package s3transfer > .tools/least/requirements.txt && \
		$(UV) pip install --quiet --python $(LEAST) -r .tools/least/requirements.txt "boto3==$$least"
	@$(UV) pip install --quiet --no-deps --python $(LEAST) --editable .
	$(LEAST) -m pytest tests/store tests/functions tests/local/test_end_to_end.py -m "not slow" $(ARGS)

test-sparks: $(READY) $(SPARKS) ## run every verb on each release of PySpark, and hold the table of docs/SPARK.md
	$(BIN)/python -m pytest tests/sparks $(ARGS)

lint: $(READY) $(TOOLS) ## check style, formatting, the import contracts and the template
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(SAM) validate --lint --region us-east-1

types: $(READY) ## check types, strictly
	$(BIN)/mypy layers/inlay/inlay functions tests/simulator tests/measured benchmarks

simulate: $(READY) ## run SEEDS=1000 random schedules of the real operations against every fault
	$(BIN)/python -m tests.simulator.simulation --seeds $(SEEDS) --jobs $(JOBS)

interleavings: $(READY) ## run every pair of operations at every order of their requests
	$(BIN)/python -m tests.simulator.interleavings --jobs $(JOBS)

model: $(READY) ## visit every state of the model of commits, in its large bounds
	$(BIN)/python docs/design/commit_model.py --large

soak-commits: $(READY) ## commit from many processes with kills, faults on the wire, an operator, for MINUTES=10
	$(BIN)/python benchmarks/soak_commits.py --minutes $(MINUTES) --seed $(SEED) $(if $(CONTROL),--control)

soak-bank: $(READY) ## transfer money between tables under kills and faults on the wire, read sums at one cut
	$(BIN)/python benchmarks/soak_bank.py --minutes $(MINUTES) --seed $(SEED)

soak: $(READY) ## kill the functions at random, double and lose messages, for MINUTES=10
	$(BIN)/python benchmarks/soak_functions.py --minutes $(MINUTES) --seed $(SEED)

mutations: $(READY) ## break the protocol rule by rule and see the simulator catch each
	$(BIN)/python -m tests.simulator.mutations

mutants: $(READY) ## change NUMBER=20 operators of FILES="plan/scan.py …", one at a time, and see whether a test fails
	$(BIN)/python -m tests.mutants --number $(NUMBER) --seed $(SEED) --jobs $(JOBS) \
		--files $(if $(findstring command,$(origin FILES)),$(FILES)) $(ARGS)

mutants-nightly: $(READY) ## the same for 150 of all rooms that decide which rows are read, kept or deleted, by today's seed
	$(BIN)/python -m tests.mutants --number 150 --seed $$(date -u +%Y%m%d) --seconds 600 --jobs $(JOBS) $(ARGS)

bench-metadata: $(READY) ## measure metadata at up to FILES="1000 … 1000000" files, against its budgets; WRITE=1: into docs/benchmarks
	$(BIN)/python -m tests.measured.metadata --files $(FILES) $(if $(WRITE),--write)
	$(if $(WRITE),$(BIN)/python benchmarks/page.py)

bench: $(READY) ## measure a small table; beside other libraries, into docs/benchmarks: PEERS=1 (half an hour; STEPS=, RESUME=1)
	$(BIN)/python benchmarks/bench.py $(if $(PEERS),--peers --write) $(if $(RESUME),--resume) $(if $(STEPS),--steps $(STEPS))

bench-day: $(READY) ## measure and price a day of the deployed functions; beside other libraries: PEERS=1
	$(BIN)/python benchmarks/day.py --write $(if $(PEERS),--peers)

bench-counts: $(READY) ## write again the counts and ratios that tests compare with
	$(BIN)/python benchmarks/bench.py --counts > docs/benchmarks/counts.json
	$(BIN)/python benchmarks/bench.py --ratios > docs/benchmarks/cpu.json

format: $(READY) ## format the code and sort its imports
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

docs: | $(UV) ## build the documentation site into site/, strictly: no dead link, no unlisted page
	@python=$$(.ci/find-python) && UV_PROJECT_ENVIRONMENT=.tools/docs \
		$(UV) sync --frozen --quiet --only-group docs --python "$$python"
	NO_MKDOCS_2_WARNING=1 .tools/docs/bin/mkdocs build --strict --quiet
	@echo "site/index.html"

##@ Deploy it
build: $(READY) $(TOOLS) ## build the functions and their layer into .aws-sam/
	UV="$(CURDIR)/$(UV)" ARCHITECTURE=$(ARCHITECTURE) $(SAM) build \
		--parameter-overrides Architecture=$(ARCHITECTURE)
	@# The default that `sam deploy` offers is what was built: functions of the other architecture could not load the layer.
	@sed '/^  Architecture:$$/,/Default:/s/Default: .*/Default: $(ARCHITECTURE)/' $(BUILT) > $(BUILT).new && mv $(BUILT).new $(BUILT)
	@$(if $(GRADUAL),.tools/sam/bin/python .ci/gradual.py $(BUILT))
	@find .aws-sam/build/InlayLayer -type f -exec cat {} + | wc -c | \
		awk '{ printf "the layer is %.1f MB unzipped\n", $$1 / 1e6 }'
	@$(BIN)/python benchmarks/cold_start.py --runs 3

deploy: build ## deploy what was built, asking for parameters (needs AWS credentials)
	$(SAM) deploy --guided

sam-local: build ## run one function in a container on the local AWS (FUNCTION=ingest, EVENT=events/ingest.normal.json)
	@# In another terminal: .venv/bin/inlay local up --host 0.0.0.0
	AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local AWS_REGION=us-east-1 \
		$(SAM) local invoke --env-vars events/env.json --event $(EVENT) \
		--add-host host.docker.internal:$(HOST_ADDRESS) $(SAM_LOCAL_ARGS) $(word 1,$(LOCAL_$(FUNCTION)))

##@ Set it up
setup: $(READY) $(TOOLS) $(ENGINES) $(EXAMPLES) ## install everything the other targets need

tools: $(TOOLS) ## install the SAM CLI into .tools/sam

engines: $(ENGINES) ## install DuckDB, pyiceberg and Polars into .tools/engines, for tests/interop

iceberg-java: $(ICEBERG_JAVA) ## install Spark 3.5 with Iceberg Java into .tools/iceberg-java, for tests/interop (700 MB)

examples: $(EXAMPLES) ## install Ibis and dbt into .tools/examples, for the examples of docs/TOOLS.md

emulators: $(EMULATORS) ## install Azurite and JavaScript's Parquet writers, for tests/store and tests/erasure (needs Node.js and npm)

sparks: $(SPARKS) ## install the older releases of PySpark into .tools/spark40 to .tools/spark42, for tests/sparks

# The patch releases are those of services (docs/SPARK.md), the least that has to work.
sparks-lock: $(UV) ## pin them again, from .ci/spark-requirements.in
	@for version in 4.0.2 4.1.1 4.2.0; do \
		release=$$(echo "$$version" | cut -c1,3); \
		echo "pyspark==$$version" | $(UV) pip compile --quiet --universal --python-version 3.11 --upgrade \
			--generate-hashes --custom-compile-command "make sparks-lock" - .ci/spark-requirements.in \
			-o .ci/spark$$release-requirements.txt; \
	done

engines-lock: $(UV) ## pin those engines again, from .ci/engines-requirements.in
	$(UV) pip compile --quiet --universal --python-version 3.11 --upgrade \
		--generate-hashes --custom-compile-command "make engines-lock" .ci/engines-requirements.in \
		-o .ci/engines-requirements.txt

iceberg-java-lock: $(UV) ## pin Spark with Iceberg Java again, from .ci/iceberg-java-requirements.in
	$(UV) pip compile --quiet --universal --python-version 3.11 --upgrade \
		--generate-hashes --custom-compile-command "make iceberg-java-lock" .ci/iceberg-java-requirements.in \
		-o .ci/iceberg-java-requirements.txt

examples-lock: $(UV) ## pin Ibis and dbt again, from .ci/examples-requirements.in
	$(UV) pip compile --quiet --universal --python-version 3.11 --upgrade \
		--generate-hashes --custom-compile-command "make examples-lock" .ci/examples-requirements.in \
		-o .ci/examples-requirements.txt

sam-lock: $(UV) ## pin the SAM CLI's dependencies again, from .ci/sam-requirements.in
	$(UV) pip compile --quiet --universal --python-version 3.11 --upgrade \
		--generate-hashes --custom-compile-command "make sam-lock" .ci/sam-requirements.in \
		-o .ci/sam-requirements.txt

security-lock: $(UV) ## pin checkov and pip-audit again, from .ci/security-requirements.in
	$(UV) pip compile --quiet --universal --python-version 3.11 --upgrade \
		--generate-hashes --custom-compile-command "make security-lock" .ci/security-requirements.in \
		-o .ci/security-requirements.txt

layer-lock: $(READY) ## pin the layer's packages again, from uv.lock
	@# The Lambda runtime brings boto3 and what boto3 needs.
	$(LAYER_EXPORT) --no-hashes --output-file layers/inlay/requirements.txt
	$(LAYER_EXPORT) --output-file layers/inlay/requirements.hashes
	$(SBOM) --extra functions | $(BIN)/python .ci/sbom.py layers/inlay/requirements.txt > layers/inlay/sbom.json

LAYER_EXPORT = $(UV) export --quiet --frozen --no-default-groups --extra functions --no-emit-project \
	--no-annotate --no-header \
	$(foreach package,boto3 botocore s3transfer jmespath python-dateutil six urllib3,\
		--no-emit-package $(package))

SBOM = $(UV) export --quiet --frozen --no-default-groups --format cyclonedx1.5

RELEASE := artifacts/release
VERSION = $(shell sed -n 's/^__version__ = "\([^"]*\)".*/\1/p' layers/inlay/inlay/__init__.py)
release: $(READY) $(TOOLS) ## build what is published: layers, a template for plain CloudFormation, wheel, SBOMs, checksums
	@rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	@for each in x86_64 arm64; do ARCHITECTURE=$$each $(SAM) build --parameter-overrides Architecture=$$each \
		--build-dir artifacts/build-$$each --cache-dir artifacts/cache-$$each > artifacts/build-$$each.log 2>&1 \
		|| { cat artifacts/build-$$each.log; exit 1; }; grep "^no strip\|^no Python" artifacts/build-$$each.log || true; done
	.tools/sam/bin/python .ci/release.py $(RELEASE) \
		$(foreach each,x86_64 arm64,$(each)=artifacts/build-$(each)/InlayLayer)
	.tools/sam/bin/cfn-lint $(RELEASE)/*.template.json
	@cp layers/inlay/sbom.json $(RELEASE)/inlay-layer-$(VERSION).sbom.json
	@$(SBOM) | $(BIN)/python .ci/sbom.py > $(RELEASE)/inlay_tables-$(VERSION).sbom.json
	@SOURCE_DATE_EPOCH=315532800 $(UV) build --quiet --wheel --out-dir $(RELEASE) && rm -f $(RELEASE)/.gitignore
	@cd $(RELEASE) && sha256sum * > ../SHA256SUMS && mv ../SHA256SUMS . && cat SHA256SUMS

security: $(SECURITY) $(TOOLS) ## check the template for weaknesses: cfn-lint and checkov, no finding allowed
	.tools/sam/bin/cfn-lint template.yaml
	.tools/security/bin/checkov --file template.yaml --framework cloudformation --compact --quiet \
		--skip-download

audit: $(SECURITY) ## check every pinned package for known vulnerabilities (needs a network)
	@# --strict: a package that cannot be looked up is a failure, not a line in a passing job.
	for pinned in layers/inlay/requirements.hashes .ci/*-requirements.txt; do \
		.tools/security/bin/pip-audit --strict --progress-spinner off --requirement $$pinned \
			--require-hashes --disable-pip || exit 1; done

clean: ## remove what was built and measured; keep the environments
	rm -rf .aws-sam .inlay site artifacts .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis spark-warehouse metastore_db derby.log

distclean: clean ## remove the environments too
	rm -rf .venv .tools

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo

# -- the environments: each has a stamp that is newer than the files it was made from -------------

$(UV): .ci/install-uv
	@echo "installing uv into .tools/uv"
	@.ci/install-uv .tools/uv
	@touch $@

$(READY): pyproject.toml uv.lock | $(UV)
	@echo "installing the project and its dependencies into .venv"
	@python=$$(.ci/find-python) && $(UV) sync --frozen --quiet --python "$$python"
	@touch $@

# An environment of its own: the SAM CLI pins many libraries to versions older than the project needs.
$(TOOLS): .ci/sam-requirements.txt | $(UV)
	@echo "installing the SAM CLI into .tools/sam"
	@python=$$(.ci/find-python) && $(UV) venv --quiet --clear --python "$$python" .tools/sam
	@$(UV) pip sync --quiet --require-hashes --python .tools/sam/bin/python .ci/sam-requirements.txt
	@touch $@

# An environment of its own: checkov pins many libraries.
$(SECURITY): .ci/security-requirements.txt | $(UV)
	@echo "installing checkov and pip-audit into .tools/security"
	@python=$$(.ci/find-python) && $(UV) venv --quiet --clear --python "$$python" .tools/security
	@$(UV) pip sync --quiet --require-hashes --python .tools/security/bin/python \
		.ci/security-requirements.txt
	@touch $@

$(ICEBERG_JAVA): .ci/iceberg-java-requirements.txt | $(UV)
	@echo "installing Spark with Iceberg Java into .tools/iceberg-java"
	@python=$$(.ci/find-python) && $(UV) venv --quiet --clear --python "$$python" .tools/iceberg-java
	@$(UV) pip sync --quiet --require-hashes --python .tools/iceberg-java/bin/python \
		.ci/iceberg-java-requirements.txt
	@touch $@

# The project's own environment has a DuckDB for which no Iceberg extension is built.
$(ENGINES): .ci/engines-requirements.txt | $(UV)
	@echo "installing other engines into .tools/engines"
	@python=$$(.ci/find-python) && $(UV) venv --quiet --clear --python "$$python" .tools/engines
	@$(UV) pip sync --quiet --require-hashes --python .tools/engines/bin/python \
		.ci/engines-requirements.txt
	@touch $@

.tools/spark4%/.ready: .ci/spark4%-requirements.txt | $(UV)
	@echo "installing PySpark 4.$* into .tools/spark4$*"
	@python=$$(.ci/find-python) && $(UV) venv --quiet --clear --python "$$python" .tools/spark4$*
	@$(UV) pip sync --quiet --require-hashes --python .tools/spark4$*/bin/python \
		.ci/spark4$*-requirements.txt
	@touch $@

# An environment of its own: dbt pins many libraries.
$(EXAMPLES): .ci/examples-requirements.txt | $(UV)
	@echo "installing Ibis and dbt into .tools/examples"
	@python=$$(.ci/find-python) && $(UV) venv --quiet --clear --python "$$python" .tools/examples
	@$(UV) pip sync --quiet --require-hashes --python .tools/examples/bin/python \
		.ci/examples-requirements.txt
	@touch $@

# Optional: without Node.js the tests of az:// are skipped, with that reason.
$(EMULATORS): .ci/emulators/package-lock.json
	@echo "installing Azurite and Parquet writers into .tools/emulators"
	@mkdir -p .tools/emulators && cp .ci/emulators/package.json .ci/emulators/package-lock.json .tools/emulators
	@npm ci --prefix .tools/emulators --ignore-scripts --no-audit --no-fund --silent
	@touch $@

.PHONY: demo up pipeline pipeline-sql simulate interleavings model soak soak-bank soak-commits mutations mutants mutants-nightly test test-wide test-all test-slow test-python test-spark test-sparks test-least costs lint types bench-metadata bench bench-day bench-counts format docs build deploy sam-local setup tools \
	emulators engines engines-lock iceberg-java iceberg-java-lock examples examples-lock sparks sparks-lock sam-lock security-lock layer-lock release sbom audit security clean distclean help
