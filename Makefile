# The commands for people. Each does its own set-up. `make help` lists them.
VENV := .venv
PORT := 8000
PYTHON := $(VENV)/bin/python
COURSE := $(VENV)/bin/mlcourse
READY := $(VENV)/ready
STUDENT_READY := $(VENV)/ready-for-labs
LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-header \
	--upgrade --quiet

.PHONY: help serve book pdf offline site test check cold diff-site check-links bench lab labs lock test-versions clean
.DEFAULT_GOAL := help

help:  ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | awk -F'|' '{printf "  %-20s %s\n", $$1, $$2}'

serve: $(READY)  ## build the book and serve it on this machine (PORT=8000)
	@$(COURSE) book serve --port $(PORT)

book: $(READY)  ## build the book into _build/html
	@$(COURSE) book build

pdf: $(READY)  ## print the whole book into _build/book.pdf
	@$(COURSE) book pdf

offline: $(READY)  ## pack the site into _build/book-offline.zip, for readers without a network
	@$(COURSE) book offline

site: $(READY)  ## write the site to publish into _build/site, with the PDF and the archive to download
	@$(COURSE) book site

# One thread per worker: there is already a worker per core
test: export OMP_NUM_THREADS = 1
test: $(READY)  ## run every check, except those that passed before with the same inputs
	@$(COURSE) release --sources
	@echo "Running the chapters that changed ..."
	@$(COURSE) book execute
	@echo "Building the site, while its notebooks run again, in fresh kernels, and every text output is compared ..."
	@$(COURSE) book build & site=$$!; \
	$(PYTHON) -m pytest --changed --nbval --nbval-current-env --durations=3 _build/notebooks; \
	compared=$$?; wait $$site && exit $$compared
	@echo "Running the labs and all other checks ..."
	@$(PYTHON) -m pytest --changed --nbval-lax --nbval-current-env --durations=10 source labs tests

check: export OMP_NUM_THREADS = 1
check: $(READY)  ## run the quick checks, and the chapters and labs that you changed since the last commit
	@$(COURSE) book build
	@$(COURSE) release --sources
	@$(PYTHON) -m pytest --changed --quick --nbval --nbval-current-env _build/notebooks
	@$(PYTHON) -m pytest --changed --quick --nbval-lax --nbval-current-env source labs tests

check-links: $(READY)  ## ask every address on other hosts that the course names (needs a network)
	@$(COURSE) book build
	@$(PYTHON) tests/links.py

cold: export OMP_NUM_THREADS = 1
cold: $(READY)  ## run every chapter without a cache, print the times, and run all checks that `make test` leaves out
	@$(COURSE) release --sources
	@$(COURSE) book cold
	@$(COURSE) book build
	@$(COURSE) book sweep
	@NIGHTLY=yes $(PYTHON) -m pytest -m nightly --durations=20 tests

diff-site: $(READY)  ## list the numbers and figures that differ from an earlier site (REV=HEAD~1)
	@$(COURSE) book diff "$(REV)"

bench: $(READY)  ## measure how fast a class is graded, beside plain nbgrader
	@$(PYTHON) tests/bench.py

lab: $(STUDENT_READY)  ## open JupyterLab on the labs (OPTIONS="--no-browser")
	@$(COURSE) lab $(OPTIONS)

labs: $(READY)  ## regenerate labs/ from solutions/
	@$(COURSE) release

lock:  ## write the lock files from pyproject.toml (needs uv)
	@$(LOCK) --all-extras --output-file requirements.lock
	@$(LOCK) --constraint requirements.lock --output-file requirements-student.lock
	@$(LOCK) --extra hub --constraint requirements.lock --output-file deploy/jupyterhub/requirements.lock

test-versions: $(READY)  ## run every check on the lowest or the newest versions (WHICH=lowest, WHICH=newest)
	@sh tests/versions.sh "$(WHICH)" $(PYTHON)

clean:  ## delete what was built (the environment stays)
	@rm -rf _build source

SETTINGS := $(wildcard mlcourse/student/jupyter/*.json)  # pip copies these into the environment

$(READY): requirements.lock pyproject.toml $(SETTINGS)
	@sh .ci/setup "$(VENV)" requirements.lock
	@touch $(READY) $(STUDENT_READY)

$(STUDENT_READY): requirements-student.lock pyproject.toml $(SETTINGS)
	@sh .ci/setup "$(VENV)" requirements-student.lock
	@touch $(STUDENT_READY)
