# Two commands set everything up:
#   make quickstart   a real image from nothing: environment, missing tools, build, a two-rank MPI all-reduce inside it
#   make setup        only .venv with envbuild
# and for developers: make check (lint, fast tests), make check-docs, make test (both and all but slow), make test-all, make bench.
PYTHON ?= python3
VENV := .venv
ENVBUILD := $(VENV)/bin/envbuild
PYTEST := $(VENV)/bin/python -m pytest
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: gpu-evidence help setup quickstart tools test-tools dev lint lint-mypy lint-prose lint-imports lint-ruff check fast-tests check-docs test test-all attack bench tables requirements rehearsal clean

help:
	@sed -n 's/^#  *//p' Makefile | head -4

# $(call need,COMMAND OR FILE,DEBIAN PACKAGE,WHY): collects what is missing; a name with a slash is a file.
define need
	@case "$(1)" in */*) test -e "$(1)" ;; *) command -v "$(1)" >/dev/null 2>&1 || test -x "/usr/sbin/$(1)" ;; esac || \
	  { echo "missing: $(1) - $(3); installing $(2)"; echo "$(2)" >> .missing; }
endef

# Installs what `need` collected, or prints what to type when that is not possible here.
define install
	@if [ -s .missing ]; then \
	  packages=$$(sort -u .missing | tr '\n' ' '); rm -f .missing; \
	  command -v apt-get >/dev/null || { echo "this machine has no apt-get; install by hand: $$packages"; exit 1; }; \
	  { [ -z "$(SUDO)" ] || command -v sudo >/dev/null; } || { echo "not root and no sudo; install as root: apt-get install $$packages"; exit 1; }; \
	  { [ -z "$(SUDO)" ] || sudo -n true 2>/dev/null; } || { echo "sudo requires a password here; type: sudo apt-get install $$packages"; exit 1; }; \
	  $(SUDO) apt-get update -qq || echo "apt-get update failed; using the existing package lists"; \
	  $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$packages >/dev/null || \
	    { echo "installation failed; type: $(SUDO) apt-get install $$packages"; exit 1; }; \
	fi; rm -f .missing
endef

# $(call timed,NAME,COMMAND): the command, then a line with the time that it took.
timed = began=$$(date +%s); $(2); code=$$?; echo "time: $(1): $$(($$(date +%s) - began)) s"; [ $$code = 0 ]
BEGAN := $(shell date +%s)

setup: $(ENVBUILD)

$(ENVBUILD): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "envbuild needs Python 3.11 or newer; type: make setup PYTHON=python3.12"; exit 1; }
	@rm -f .missing; $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "missing: Python's venv - holds envbuild; installing python3-venv"; echo python3-venv > .missing; }
	$(install)
	@echo "installing envbuild and what it needs into $(VENV)"
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install -qq --no-input -e . || { echo "pip could not install envbuild's dependencies; run: $(VENV)/bin/pip install -e ."; exit 1; }
	@touch $(ENVBUILD)
	@echo "envbuild is in $(VENV); type: $(ENVBUILD) list"

# What building needs beside Python. As root that is the archive's keyring alone; a plain user needs the id maps and a FUSE reader.
tools:
	@rm -f .missing
	$(call need,/usr/share/keyrings/debian-archive-keyring.gpg,debian-archive-keyring,checks the signature of the Debian archive when a lock is made)
	$(call need,gpgv,gpgv,apt checks that signature with it)
	@grep -qsx 'ID=debian' /etc/os-release || command -v mmdebstrap >/dev/null || command -v debootstrap >/dev/null || test -x /usr/sbin/debootstrap || \
	  { echo "missing: debootstrap - names the Debian archive, which apt here does not know; installing debootstrap"; echo debootstrap >> .missing; }
	@[ "$$(id -u)" = 0 ] || command -v newuidmap >/dev/null || { echo "missing: newuidmap - a user namespace with more than one user; installing uidmap"; echo uidmap >> .missing; }
	@[ "$$(id -u)" = 0 ] || command -v squashfuse >/dev/null || { echo "missing: squashfuse - opens a finished image without root; installing squashfuse"; printf 'squashfuse\nfuse3\n' >> .missing; }
	$(install)

quickstart: setup tools
	@$(ENVBUILD) lock cpu-ucx --refresh
	@$(ENVBUILD) make cpu-ucx
	@echo "two MPI ranks inside the finished squashfs, over UCX:"
	@$(ENVBUILD) run "$$($(ENVBUILD) show cpu-ucx --json | $(VENV)/bin/python -c 'import json, sys; print(json.load(sys.stdin)["made"]["artifact"])')" -- \
	  sh -c 'UCX_TLS=self,sm,tcp mpirun --oversubscribe --mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any -n 2 /opt/venv/bin/python -c "from mpi4py import MPI; import numpy; c = MPI.COMM_WORLD; x = numpy.full(4, c.rank + 1.0); c.Allreduce(MPI.IN_PLACE, x); print(\"rank\", c.rank, \"of\", c.size, \"all-reduce\", x)"'
	@$(ENVBUILD) make cpu-ucx

# The checks of one node as one file of 64 MB at most, to copy by hand to a machine with one GPU (docs/verify-gpu.md).
IMAGE ?= h100-nccl
gpu-evidence: setup
	@$(ENVBUILD) verify $(IMAGE) --tier gpu --pack gpu-evidence.pyz

# What the tests start for real.
test-tools: dev tools
	@rm -f .missing
	$(call need,unsquashfs,squashfs-tools,reads images back and compares)
	$(call need,gensquashfs,squashfs-tools-ng,writes images for comparison)
	$(call need,mkfs.xfs,xfsprogs,a file system that shares blocks)
	$(call need,mkfs.btrfs,btrfs-progs,another one)
	$(call need,squashfuse,squashfuse,mounts images without root)
	$(call need,fusermount3,fuse3,unmounts them)
	$(call need,newuidmap,uidmap,builds as an unprivileged user)
	$(call need,buildah,buildah,builds the printed Containerfile)
	$(call need,skopeo,skopeo,reads OCI layouts)
	$(call need,ccache,ccache,compiles into the cache of a store)
	$(call need,umoci,umoci,unpacks images for comparison)
	$(call need,dockerd,docker.io,loads images into a Docker Engine)
	$(call need,setfattr,attr,extended attributes)
	$(call need,setcap,libcap2-bin,file capabilities)
	$(call need,gcc,gcc,a C program in a test image)
	$(call need,git,git,repositories that sources are taken from)
	$(call need,docker-registry,docker-registry,base images come from a registry)
	$(call need,mmdebstrap,mmdebstrap,a real base image for it)
	$(call need,openssl,openssl,a registry that requires tokens)
	$(call need,gpg,gpg,signed package repositories)
	$(call need,chromium,chromium,opens the page of a report)
	$(call need,slurmctld,slurmctld,starts jobs on two nodes)
	$(call need,slurmd,slurmd,the same)
	$(call need,srun,slurm-client,the same)
	$(call need,munged,munge,the same)
	$(call need,mpicc,libopenmpi-dev,a program of MPI for them)
	$(install)
	@echo "time: environment and tools: $$(($$(date +%s) - $(BEGAN))) s"

# What tests and linters need beside envbuild.
dev: setup $(VENV)/.dev

$(VENV)/.dev: pyproject.toml | setup
	@$(VENV)/bin/pip install -qq -e '.[test]' && touch $@

# Two at a time, the longest first; each prints its lines when it ends, and one that fails does not stop the others.
lint: dev
	@$(call timed,lint,$(MAKE) --no-print-directory -j2 -k --output-sync=target lint-mypy lint-prose lint-imports lint-ruff)

lint-mypy:
	$(VENV)/bin/mypy

lint-prose:
	$(VENV)/bin/python tests/prose/check.py

lint-imports:
	$(VENV)/bin/lint-imports

lint-ruff:
	$(VENV)/bin/ruff check .

# The linters run beside the tests, which often wait for a process or a server of theirs.
check: dev
	@$(MAKE) --no-print-directory -j2 -k fast-tests lint-mypy lint-prose lint-imports lint-ruff

# Every process of the run loads what another one has compiled, even where the user disabled such files.
fast-tests: export PYTHONDONTWRITEBYTECODE :=
fast-tests:
	$(PYTEST) -q -n auto --dist worksteal --hypothesis-profile=quick -m '(unit or golden) and not slow_unit'

# Links, commands and examples of the documentation; generated tables; workflows.
check-docs: dev
	@$(call timed,docs,$(PYTEST) -q -m docs)

# Contains check and check-docs; each test runs once, and all run, whatever fails. Unit tests share nothing. Tests that
# start servers, daemons and engines share what a file makes, those that build images what a folder makes, and they often
# wait: three workers keep two cores busy.
TIER := $(PYTEST) -q --durations=15 --durations-min=5
define tiers
	@failed=; \
	$(call timed,unit and docs,$(TIER) -n auto --dist worksteal -m '(unit or golden or matrix or docs)$(1)') || failed=1; \
	$(call timed,engine and images,$(TIER) -n 3 --dist loadfile -m '(engine or registry or clients or images)$(1)') || failed=1; \
	[ -z "$$failed" ]
endef

test test-all: export PYTHONDONTWRITEBYTECODE :=

test: test-tools lint
	$(call tiers, and not slow)

test-all: test-tools lint
	$(call tiers)

# More random attacks than make test tries, with another seed: make attack N=200 SEED=7
attack: export ENVBUILD_ATTACK_N := $(or $(N),200)
attack: export ENVBUILD_ATTACK_SEED := $(or $(SEED),1)
attack: test-tools
	$(PYTEST) tests/attack

tables: setup
	$(ENVBUILD) matrix show --markdown > docs/tables.md

# The packages that a machine of CI installs, each with its hashes (.github/steps/prepare.sh).
requirements: setup
	printf 'hatchling>=1.27\neditables\n' | $(VENV)/bin/uv pip compile --quiet --upgrade --generate-hashes --no-annotate --no-header \
	  --python-version 3.11 --python-platform linux --only-binary :all: pyproject.toml - -o .github/steps/requirements.txt

# Every version of every recipe against its real source: ENVBUILD_REHEARSAL_SITE=site.yaml, whose mirrors have upstream's
# repositories. ENVBUILD_REHEARSAL_MINUTES (20) is its limit; what is done is kept in the store, and the next run goes on.
# ENVBUILD_REHEARSAL_HEAVY=1 also builds what is below a unit: torch, the CUDA toolkit (20 GB of store), UCX, libfabric.
rehearsal: dev tools
	$(PYTEST) -q -m rehearsal tests/rehearsal --update-golden

bench: test-tools
	$(VENV)/bin/python benchmarks/run.py
	$(VENV)/bin/python benchmarks/matrix.py
	$(VENV)/bin/python benchmarks/images.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
