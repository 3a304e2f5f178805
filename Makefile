# SPDX-License-Identifier: GPL-2.0-only
# Builds, installs, packages and tests memwait. `make help` lists the targets.

KDIR ?= /lib/modules/$(shell uname -r)/build
PREFIX ?= /usr/local
INSTALL_MOD_PATH ?= $(DESTDIR)
KERNELS ?= 6.1 6.12-rt debug
DEMO_KERNEL ?= newest
KERNEL ?= debug
BENCH_KERNEL ?= newest
MUTANTS_KERNEL ?= newest
MINUTES ?= 10
DIST ?= dist

# A kernel that was built with clang has options that gcc does not know.
LLVM ?= $(if $(shell grep -s '^CONFIG_CC_IS_CLANG=y' $(KDIR)/include/config/auto.conf),1)

VM := selftests/vm/run

all: modules lib			## build the module for the running kernel, and the library

help:						## this list
	@sed -n 's/^\([a-z_-]*\):.*## \(.*\)/\1 \2/p' $(MAKEFILE_LIST) | \
		while read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done
	@echo
	@echo "KDIR=    kernel headers to build against (those of the running kernel)"
	@echo "LLVM=    as for the kernel's Makefile (1 if the kernel of KDIR was built with clang)"
	@echo "KERNELS= kernels of check-kernels: $(KERNELS)"
	@echo "KERNEL=  kernel of torture, deaths and fuzz ($(KERNEL)); $(VM) kernels lists all"
	@echo "BENCH_KERNEL= kernel of bench ($(BENCH_KERNEL)); ROUNDS= rounds of each contender (7)"
	@echo "MUTANTS= part of mutants-module: files, such as module/wait.c, or words of the fault (all)"
	@echo "MUTANTS_KERNEL= kernel of mutants-module ($(MUTANTS_KERNEL))"
	@echo "MINUTES= duration of torture, deaths and fuzz ($(MINUTES))"
	@echo "DIST=    directory for the results of dist, deb, rpm and arch ($(DIST))"
	@echo "KERNEL_TREE= kernel source tree, for in-tree"
	@echo "PREFIX=  installation prefix of install-lib ($(PREFIX))"
	@echo "DESTDIR= root directory to install into; depmod and ldconfig are not run then;"
	@echo "         INSTALL_MOD_PATH= is the same for the module only"
	@echo "TEXT=    text file for demo (the sources of this project)"

modules:					## build memwait.ko against KDIR
	@[ -e "$(KDIR)/Makefile" ] || { \
		echo "no kernel headers in $(KDIR): install linux-headers-$$(uname -r)," \
			"or give KDIR=; see Documentation/install.rst" >&2; exit 1; }
	$(MAKE) -C $(KDIR) M=$(CURDIR) LLVM=$(LLVM) modules

lib:					## build libmemwait, static and shared
	$(MAKE) -C userlib all

# The kernel's Makefile runs depmod only if it finds a System.map, which the headers of a
# distribution lack. With INSTALL_MOD_PATH, the program that copies the files to their final place
# has to run depmod. The release is the output of uname -r, from which Debian's kernel.release
# differs.
kernel_release = $$(sed -n 's/^.define UTS_RELEASE "\(.*\)"/\1/p' \
	$(KDIR)/include/generated/utsrelease.h)
depmod = [ -n "$(INSTALL_MOD_PATH)" ] || PATH="$$PATH:/usr/sbin:/sbin" depmod "$$release"

# The headers of a distribution have no signing key, but the kernel's Makefile would try to sign.
signing_key = $(wildcard $(KDIR)/certs/signing_key.pem)

modules_install:				## install memwait.ko, run depmod
	$(MAKE) -C $(KDIR) M=$(CURDIR) LLVM=$(LLVM) INSTALL_MOD_PATH=$(INSTALL_MOD_PATH) DEPMOD=true \
		$(if $(signing_key),,CONFIG_MODULE_SIG_ALL=) modules_install
	$(if $(signing_key),,@echo "memwait.ko is not signed: see Documentation/install.rst")
	release=$(kernel_release) && { $(depmod); }

# The directory where the kernel's Makefile puts the module depends on its version.
modules_uninstall:				## remove memwait.ko, run depmod
	release=$(kernel_release) && \
	for directory in $(or $(INSTALL_MOD_DIR),extra updates); do \
		rm -f "$(INSTALL_MOD_PATH)/lib/modules/$$release/$$directory/memwait.ko"*; \
	done && { $(depmod); }

install: modules_install install-lib		## modules_install and install-lib

install-lib:				## the library, headers and manual pages, in PREFIX
	$(MAKE) -C userlib install PREFIX=$(PREFIX)

uninstall: uninstall-lib modules_uninstall	## undo install

uninstall-lib:				## undo install-lib
	$(MAKE) -C userlib uninstall PREFIX=$(PREFIX)

# The same files always produce the same tarball.
dist:						## write memwait-VERSION.tar.xz to DIST
	@packaging/dist "$(DIST)"

deb:						## build the Debian packages in DIST
	@packaging/deb "$(DIST)"

rpm:						## build RPM packages in DIST
	@packaging/rpm "$(DIST)"

arch:						## write a PKGBUILD for Arch Linux in DIST
	@packaging/arch "$(DIST)"

in-tree:					## generate patches for KERNEL_TREE in DIST, and apply them
	@packaging/in-tree "$(KERNEL_TREE)" "$(DIST)"

quick:						## test the library here in seconds, without root and the module
	@selftests/userlib/quick/run

mutants:					## break the library in many ways: a test must fail each time
	@selftests/mutants/run library

check:						## run all tests on the newest kernel, in VMs
	@selftests/vm/check quick

check-kernels:					## other kernels, checkers, simulated threads, builds
	@selftests/vm/check kernels $(KERNELS)

check-all:					## both on all kernels, models, packages (hours)
	@selftests/vm/check all

# Settings for a program in the guest, if they are passed to make.
settings = $(foreach name,$(1),$(if $($(name)),$(name)='$($(name))'))

torture:					## random load with exact accounting, for MINUTES
	@$(VM) --test module/torture --timeout $$(($(MINUTES) * 60 + 600)) exec $(KERNEL) \
		"MEMWAIT_TORTURE_SECONDS=$$(($(MINUTES) * 30)) \
		$(call settings,MEMWAIT_TORTURE_SEED) /tests/module/torture"

deaths:						## kill processes inside the library, for MINUTES
	@$(VM) --test userlib/deaths --timeout $$(($(MINUTES) * 60 + 600)) exec $(KERNEL) \
		"MEMWAIT_DEATHS_SECONDS=$$(($(MINUTES) * 60)) \
		$(call settings,MEMWAIT_DEATHS_SEED MEMWAIT_DEATHS_ONLY) /tests/userlib/deaths"

fuzz:						## random calls guided by coverage, for MINUTES
	@$(VM) --test fuzz/fuzz --timeout $$(($(MINUTES) * 60 + 600)) exec $(KERNEL) \
		"MEMWAIT_FUZZ_SECONDS=$$(($(MINUTES) * 60)) \
		$(call settings,MEMWAIT_FUZZ_SEED MEMWAIT_FUZZ_REPLAY) /tests/fuzz/fuzz"

mutants-module:					## break the module in many ways: a test must fail each time
	@selftests/vm/mutants $(MUTANTS_KERNEL) $(MUTANTS)

bench:						## compare with futex, io_uring, eventfd, glibc and others
	@selftests/vm/bench $(BENCH_KERNEL)

bench-report:				## bench, and record the figures for the documents
	@selftests/vm/bench --record $(BENCH_KERNEL)

demo:						## count words while processes are killed, in a VM
	@selftests/vm/demo $(DEMO_KERNEL) $(TEXT)

docs:						## build the web site in DIST/site; downloads 240 MB once
	@selftests/vm/host docs "$(DIST)/site"
	@echo "$(DIST)/site/index.html"

try:						## run README's example, here or in a VM with a shell
	@selftests/vm/try $(DEMO_KERNEL)

style:						## W=1, sparse, checkpatch, kernel-doc, shellcheck, names
	@selftests/lint/style

# The compiler calls that build the module and the library, for clangd and other tools.
compile_commands.json:				## generate it anew with bear, for editors
	bear --output $@ -- $(MAKE) -B all

abi:						## record the library's ABI anew, and print changes
	@selftests/vm/host abi

bindgen:					## record the declarations for Rust anew, and print changes
	@selftests/vm/host bindgen

clean:						## remove build results, but not the cache
	@if [ -d "$(KDIR)" ]; then $(MAKE) -C $(KDIR) M=$(CURDIR) clean; fi
	@$(MAKE) -s -C userlib clean
	@rm -rf selftests/build
	@$(MAKE) -s -C selftests/bindings clean
	@find selftests -name __pycache__ -exec rm -rf {} +

.PHONY: all help modules lib modules_install modules_uninstall install install-lib uninstall \
	uninstall-lib dist deb rpm arch in-tree quick check check-kernels check-all torture deaths fuzz \
	mutants mutants-module bench bench-report demo docs try style compile_commands.json abi bindgen \
	clean
