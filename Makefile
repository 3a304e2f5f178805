# SPDX-License-Identifier: GPL-2.0-only
# Drives everything. `make help` lists the targets.

KDIR ?= /lib/modules/$(shell uname -r)/build
PREFIX ?= /usr
KERNELS ?= 6.1 6.12 7.2 6.12-rt debug
DEMO_KERNEL ?= 7.2

VM := selftests/vm/run

all: modules lib			## build the module for the running kernel, and the library

help:						## this list
	@sed -n 's/^\([a-z_-]*\):.*## \(.*\)/\1 \2/p' $(MAKEFILE_LIST) | \
		while read -r target text; do printf '%-18s %s\n' "$$target" "$$text"; done
	@echo
	@echo "KDIR=    kernel headers to build against (those of the running kernel)"
	@echo "KERNELS= kernels of check: $(KERNELS), also 6.1-rt, 7.2-rt"
	@echo "PREFIX=  where install-lib installs ($(PREFIX)), below DESTDIR="
	@echo "TEXT=    file for demo to count the words of (the sources of this project)"

modules:					## build memwait.ko against KDIR
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules

lib:					## build libmemwait, static and shared
	$(MAKE) -C userlib all

modules_install:				## install memwait.ko, run depmod
	$(MAKE) -C $(KDIR) M=$(CURDIR) modules_install

install: modules_install install-lib		## modules_install and install-lib

install-lib:				## the library, headers and manual pages, in PREFIX
	$(MAKE) -C userlib install PREFIX=$(PREFIX)

check:						## style, builds and all tests, in VMs; counts at the end
	@selftests/vm/check $(KERNELS)

demo:						## count words in five processes, in a VM
	@selftests/vm/demo $(DEMO_KERNEL) $(TEXT)

style:						## W=1, sparse, checkpatch, kernel-doc, shellcheck, names
	@selftests/lint/style

clean:						## remove what was built here; the cache stays
	@if [ -d "$(KDIR)" ]; then $(MAKE) -C $(KDIR) M=$(CURDIR) clean; fi
	@$(MAKE) -s -C userlib clean
	@git clean -fdXq selftests 2>/dev/null || :

.PHONY: all help modules lib modules_install install install-lib check demo style clean
