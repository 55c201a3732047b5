# Everything here needs Python 3.11+ and nothing else: each target makes its own virtual environment first.
PYTHON ?= python3
VENV ?= .venv
PORT ?= 8000
MONGODB_PORT ?= 27117
# What the tests are run with: `dev`, or `test-djongo` in an environment of its own.
EXTRA ?= dev
BIN := $(VENV)/bin
RANDOM_TEXT = $$($(BIN)/python -c "import secrets; print(secrets.token_urlsafe(60))")

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench mongodb messages clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ONCE=1 ends after the table, with an error unless the books balance; KEEP=1 goes on where an earlier demo stopped.
demo: $(VENV)/.installed-example ## Fulfil a few hundred orders, then serve the admin (ONCE=1, KEEP=1, PORT=8000)
	@$(BIN)/python manage.py demo --port $(PORT) $(if $(filter-out 0,$(ONCE)),--once) $(if $(filter-out 0,$(KEEP)),--keep)

test: $(VENV)/.installed-$(EXTRA) ## Run the tests (on SQLite, or on what DATABASE_URL names; ARGS="-k name")
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed-dev ## Lint, format, types, migrations, deployment settings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy pikku_storage console example_project tests
	$(BIN)/python manage.py makemigrations --check --dry-run
	DJANGO_SETTINGS_MODULE=example_project.settings_offline DATABASE_URL=mongodb://127.0.0.1/none \
	  $(BIN)/python manage.py makemigrations --check --dry-run
	DJANGO_SETTINGS_MODULE=example_project.settings_production DATABASE_URL=sqlite:///:memory: \
	  CELERY_BROKER_URL=memory:// ALLOWED_HOSTS=shop.example SECRET_KEY=$(RANDOM_TEXT) PIKKU_SECRET_KEK=$(RANDOM_TEXT) \
	  $(BIN)/python manage.py check --deploy --fail-level WARNING

format: $(VENV)/.installed-dev ## Format the code and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-bench ## Measure, beside our peers (BENCH_QUICK=1: under a minute)
	$(BIN)/python -m benchmarks

messages: $(VENV)/.installed-dev ## Collect the texts to be translated, and compile the translations (needs GNU gettext)
	@for app in console $(patsubst %/apps.py,%,$(wildcard pikku_storage/*/apps.py)); do \
	  (cd $$app && $(CURDIR)/$(BIN)/django-admin makemessages --locale de --no-wrap --add-location file && $(CURDIR)/$(BIN)/django-admin compilemessages --locale de) || exit 1; \
	done

clean: ## Remove what the other targets made
	rm -rf .venv .venv-* var build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

mongodb: .venv-mongodb/.installed ## Serve a stand-in for MongoDB on 127.0.0.1:27117, for tests (MONGODB_PORT=27117)
	@exec .venv-mongodb/bin/python tests/servers/mongodb.py --host 127.0.0.1 --port $(MONGODB_PORT) \
	  --storage-path :memory: --log-level WARNING

# In an environment of its own, because it is under the GPL.
.venv-mongodb/.installed:
	@test -x .venv-mongodb/bin/python || $(PYTHON) -m venv .venv-mongodb
	@.venv-mongodb/bin/python -m pip install --quiet --disable-pip-version-check secantusdb==0.7.0b3
	@touch $@

# One stamp per extra, so that `make demo` does not install what only developers need.
$(VENV)/.installed-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=/path/to/it")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the '$*' requirements into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@
