# The usual verbs. Each only calls a script, which says at its top what it does.
.DEFAULT_GOAL := help
.PHONY: help setup check fix unit test docs demo package release

T := tests/unit

help: ## what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## /{ printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## .venv with all three packages and every tool; as root also Debian's Slurm
	scripts/setup.sh

check: ## style, types and import rules
	scripts/check.sh

fix: ## the style, where ruff can mend it
	scripts/check.sh fix

unit: ## the unit tests, or some: make unit T=tests/unit/agent/ipc/test_gate.py
	scripts/test.sh -- -m "not mpi and not release and not long" $(T)

test: ## all that CI runs
	scripts/test.sh

docs: ## the documentation, in build/docs
	scripts/docs.sh

demo: ## the demo on a simulated Slurm
	scripts/demo.sh

package: ## the Debian packages, in dist/
	deploy/build-deb.sh

release: ## everything that a release consists of, in dist/
	scripts/release.sh
