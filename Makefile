# SPDX-License-Identifier: GPL-2.0-only
# Drives everything. `make help` lists the targets.

KDIR ?= /lib/modules/$(shell uname -r)/build
PREFIX ?= /usr/local
INSTALL_MOD_PATH ?= $(DESTDIR)
KERNELS ?= 6.1 6.12-rt debug
DEMO_KERNEL ?= newest
KERNEL ?= debug
BENCH_KERNEL ?= newest
MINUTES ?= 10
DIST ?= dist

VM := selftests/vm/run

all: modules lib			## build the module for the running kernel, and the library

help:						## this list
	@sed -n 's/^\([a-z_-]*\):.*## \(.*\)/\1 \2/p' $(MAKEFILE_LIST) | \
		while read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done
	@echo
	@echo "KDIR=    kernel headers to build against (those of the running kernel)"
	@echo "KERNELS= kernels of check-kernels: $(KERNELS)"
	@echo "KERNEL=  kernel of torture, deaths and fuzz ($(KERNEL)); all there are: $(VM) kernels"
	@echo "BENCH_KERNEL= kernel of bench ($(BENCH_KERNEL)); ROUNDS= of each contender (7)"
	@echo "MINUTES= how long they last ($(MINUTES))"
	@echo "DIST=    where dist and deb put what they make ($(DIST))"
	@echo "KERNEL_TREE= source of a kernel, for in-tree"
	@echo "PREFIX=  where install-lib installs ($(PREFIX))"
	@echo "DESTDIR= root to install below, and then neither depmod nor ldconfig is run;"
	@echo "         INSTALL_MOD_PATH= is the same for the module alone"
	@echo "TEXT=    file for demo to count the words of (the sources of this project)"

modules:					## build memwait.ko against KDIR
	@[ -e "$(KDIR)/Makefile" ] || { \
		echo "no kernel headers in $(KDIR): install linux-headers-$$(uname -r)," \
			"or give KDIR=; see Documentation/install.rst" >&2; exit 1; }
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules

lib:					## build libmemwait, static and shared
	$(MAKE) -C userlib all

# The kernel's Makefile does not run depmod without a System.map, which the headers of a distribution
# lack. Below another root it is for whoever puts the files into place. The release is what uname says
# there: Debian's kernel.release is another one.
kernel_release = $$(sed -n 's/^.define UTS_RELEASE "\(.*\)"/\1/p' \
	$(KDIR)/include/generated/utsrelease.h)
depmod = [ -n "$(INSTALL_MOD_PATH)" ] || PATH="$$PATH:/usr/sbin:/sbin" depmod "$$release"

# The headers of a distribution have no key to sign with, and the kernel's Makefile would try.
signing_key = $(wildcard $(KDIR)/certs/signing_key.pem)

modules_install:				## install memwait.ko, run depmod
	$(MAKE) -C $(KDIR) M=$(CURDIR) INSTALL_MOD_PATH=$(INSTALL_MOD_PATH) DEPMOD=true \
		$(if $(signing_key),,CONFIG_MODULE_SIG_ALL=) modules_install
	$(if $(signing_key),,@echo "memwait.ko is not signed, see Documentation/install.rst")
	release=$(kernel_release) && { $(depmod); }

# Where the kernel's Makefile puts it, by its version.
modules_uninstall:				## remove memwait.ko, run depmod
	release=$(kernel_release) && \
	for directory in $(or $(INSTALL_MOD_DIR),extra updates); do \
		rm -f "$(INSTALL_MOD_PATH)/lib/modules/$$release/$$directory/memwait.ko"*; \
	done && { $(depmod); }

install: modules_install install-lib		## modules_install and install-lib

install-lib:				## the library, headers and manual pages, in PREFIX
	$(MAKE) -C userlib install PREFIX=$(PREFIX)

uninstall: uninstall-lib modules_uninstall	## remove what install has installed

uninstall-lib:				## the same of install-lib
	$(MAKE) -C userlib uninstall PREFIX=$(PREFIX)

# The tarball is the same for the same files.
dist:						## memwait-VERSION.tar.xz, in DIST
	@packaging/dist "$(DIST)"

deb:						## the packages of Debian, in DIST
	@packaging/deb "$(DIST)"

in-tree:					## patches for KERNEL_TREE, in DIST, and applied
	@packaging/in-tree "$(KERNEL_TREE)" "$(DIST)"

check:						## all tests on the newest kernel, in VMs; counts at the end
	@selftests/vm/check quick

check-kernels:					## on others and with checkers; models, sanitizers, packages
	@selftests/vm/check kernels $(KERNELS)

check-all:					## both, on all kernels there are, which takes hours
	@selftests/vm/check all

# Settings for a program in the guest, if they are given to make.
settings = $(foreach name,$(1),$(if $($(name)),$(name)='$($(name))'))

torture:					## everything at once with exact accounting, MINUTES long
	@$(VM) --test module/torture --timeout $$(($(MINUTES) * 60 + 600)) exec $(KERNEL) \
		"MEMWAIT_TORTURE_SECONDS=$$(($(MINUTES) * 30)) \
		$(call settings,MEMWAIT_TORTURE_SEED) /tests/module/torture"

deaths:						## processes that are killed in the library, MINUTES long
	@$(VM) --test userlib/deaths --timeout $$(($(MINUTES) * 60 + 600)) exec $(KERNEL) \
		"MEMWAIT_DEATHS_SECONDS=$$(($(MINUTES) * 60)) \
		$(call settings,MEMWAIT_DEATHS_SEED MEMWAIT_DEATHS_ONLY) /tests/userlib/deaths"

fuzz:						## random calls, guided by coverage, MINUTES long
	@$(VM) --test fuzz/fuzz --timeout $$(($(MINUTES) * 60 + 600)) exec $(KERNEL) \
		"MEMWAIT_FUZZ_SECONDS=$$(($(MINUTES) * 60)) \
		$(call settings,MEMWAIT_FUZZ_SEED MEMWAIT_FUZZ_REPLAY) /tests/fuzz/fuzz"

bench:						## beside futex, io_uring, eventfd, glibc and others
	@selftests/vm/bench $(BENCH_KERNEL)

bench-report:				## the same, and record it, for later ones and the documents
	@selftests/vm/bench --record $(BENCH_KERNEL)

demo:						## count words while processes are killed, in a VM
	@selftests/vm/demo $(DEMO_KERNEL) $(TEXT)

docs:						## the pages and manual pages as a site, in DIST/site
	@selftests/vm/host docs "$(DIST)/site"
	@echo "$(DIST)/site/index.html"

try:						## README's example, a wait and a notify, on the running kernel or in a VM with a prompt
	@selftests/vm/try $(DEMO_KERNEL)

style:						## W=1, sparse, checkpatch, kernel-doc, shellcheck, names
	@selftests/lint/style

abi:						## record what programs rely on anew, and print what has changed
	@selftests/vm/host abi

clean:						## remove what was built here; the cache stays
	@if [ -d "$(KDIR)" ]; then $(MAKE) -C $(KDIR) M=$(CURDIR) clean; fi
	@$(MAKE) -s -C userlib clean
	@git clean -fdXq selftests 2>/dev/null || :

.PHONY: all help modules lib modules_install modules_uninstall install install-lib uninstall \
	uninstall-lib dist deb in-tree check check-kernels check-all torture deaths fuzz bench bench-report demo docs try style abi clean
