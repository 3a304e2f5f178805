# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Builds everything that a VM needs, once, and stores it in the cache: build roots with compilers,
# headers and kernel images, the kernel source, the debug kernel, the built module, the built tests.
# A script must set $top, the top of the source tree, before it sources this file.

cache=${MEMWAIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/memwait}
here=$top/selftests/vm

# The names of kernels: the oldest supported kernel, Debian's long-term kernel, and Debian's newest
# kernel, each of them also with PREEMPT_RT. Two kernels are built here: debug has every checker
# except KCSAN, and kcsan has KCSAN, which excludes the other checkers. 6.12-m32 runs 32-bit
# programs on a 64-bit kernel, and 6.12-arm64 runs on another architecture. newest is the kernel
# that Debian's backports had on the day when its build root was made. Its version is known only
# from its release.
all_kernels="6.1 6.1-rt 6.12 6.12-rt newest newest-rt debug kcsan 6.12-m32 6.12-arm64"

# Whether the clock of the guest counts instructions.
icount=false

# The compiler of the tests, and additional arguments for make, for the kernel in use.
cc=gcc
cross=()

die()
{
	echo "${0##*/}: $*" >&2
	exit 1
}

# step TEXT COMMAND...: runs a long command, and shows one line of progress. If the command fails,
# shows the end of its output.
step()
{
	local text=$1 log pid start=$SECONDS status=0
	shift
	log=$(mktemp)
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	[ -t 2 ] || echo "$text ..." >&2
	while kill -0 $pid 2>/dev/null; do
		if [ -t 2 ]; then
			printf '\r%s ... %d s' "$text" $((SECONDS - start)) >&2
		elif [ $(((SECONDS - start) % 30)) -eq 29 ]; then
			echo "$text ... $((SECONDS - start)) s: $(tail -n 1 "$log")" >&2
		fi
		sleep 1
	done
	wait $pid || status=$?
	[ ! -t 2 ] || printf '\r' >&2
	if [ $status -eq 0 ]; then
		echo "$text: $((SECONDS - start)) s" >&2
	else
		echo "$text: failed" >&2
		tail -n 50 "$log" >&2
	fi
	rm "$log"
	return $status
}

# artefact DIR TEXT FUNCTION ARG...: unless DIR exists, creates it by FUNCTION DIR.tmp ARG...
# DIR.tmp is renamed when it is complete, so an interrupted run leaves nothing that could be
# mistaken for DIR.
artefact()
{
	local dir=$1 text=$2 function=$3
	shift 3
	if [ -d "$dir" ]; then
		touch "$dir"
		return
	fi
	mkdir -p "${dir%/*}"
	(
		flock 9
		[ ! -d "$dir" ] || exit 0
		rm -rf "$dir.tmp"
		mkdir "$dir.tmp"
		if [ -n "$text" ]; then
			step "$text" "$function" "$dir.tmp" "$@" || exit 1
		else
			"$function" "$dir.tmp" "$@" || exit 1
		fi
		mv "$dir.tmp" "$dir"
	) 9>"$dir.lock" || die "cannot build ${dir##*/}"
	# A directory whose name contains a hash of its inputs is not used again after these have
	# changed.
	find "${dir%/*}" -ignore_readdir_race -mindepth 1 -maxdepth 1 -name '*-????????????????*' \
		-mtime +7 -exec rm -rf {} + || :	# another run may delete the same files
}

# Prints the first digits of a hash of the given files, their names, and standard input.
hash_of()
{
	{ sha256sum -- "$@" | sed "s|$top/||"; cat; } | sha256sum | cut -c 1-16
}

# answered NAME FILE... -- COMMAND...: prints the output of COMMAND, or the output of an earlier
# COMMAND that succeeded with the same FILEs and with the same packages in $root. The output must
# depend on nothing else.
answered()
{
	local name=$1 files=() answer
	shift
	while [ "$1" != -- ]; do
		files+=("$1")
		shift
	done
	shift
	files+=("$here/host" "$root/var/lib/dpkg/status")
	answer=$cache/answers/$name-$(hash_of "${files[@]}" </dev/null)
	if [ -e "$answer" ]; then
		touch "$answer"
		cat "$answer"
		# An empty output stays empty.
		[ ! -s "$answer" ] ||
			echo "# $name: cached result, the inputs have not changed"
		return
	fi
	mkdir -p "$cache/answers"
	find "$cache/answers" -ignore_readdir_race -type f -mtime +7 -delete || :
	"$@" | tee "$answer.$$" && mv "$answer.$$" "$answer"
}

# in_root ROOT COMMAND...: runs a command in a build root, in which the cache is /cache. The mounts
# are private and end with the command. objtool needs /proc.
in_root()
{
	local root=$1 map=
	shift
	[ "$(id -u)" -eq 0 ] || map=--map-root-user
	mkdir -p "$root/cache"
	# shellcheck disable=SC2016
	unshare $map --mount --pid --kill-child sh -euc '
		root=$1
		mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
		mount --rbind /dev "$root/dev"
		mount --bind "$2" "$root/cache"
		shift 2
		exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C "$@"
	' sh "$root" "$cache" "$@"
}

# debian_uri SECURITY: prints the address of the Debian archive, or with SECURITY=1 that of the
# security archive, from the apt sources of this machine.
debian_uri()
{
	apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(REPO_URI)' 'Created-By: Packages' |
		awk -F '|' -v "security=$1" '
			$1 == "Debian" && ($2 ~ /-security$/) == security && $2 !~ /-(updates|backports)/ {
				print $3
				exit
			}'
}

make_root()
{
	local dir=$1 suite=$2 packages=$3 extra=$4 architectures=$5 hook=${6:-true}
	local uri extra_uri mode=unshare before=true excludes=() path
	uri=$(debian_uri 0)
	[ -n "$uri" ] || die "no apt source for Debian is configured on this machine"
	extra_uri=$uri
	if [ "${extra#*-}" = security ]; then
		extra_uri=$(debian_uri 1)
		# If no source names the security archive, it is assumed next to the main archive.
		: "${extra_uri:=${uri%/}-security}"
	fi
	[ "$(id -u)" -ne 0 ] || mode=root
	if [ "${hook##*/}" = fetch-kernels ]; then
		# No guest has these devices or needs manuals.
		for path in share/{doc,locale,man} modules/\*/kernel/{sound,drivers/{gpu,media,net}}; do
			excludes+=("--dpkgopt=path-exclude=/*/$path/*")
		done
		# The packages of some kernels build an initramfs, which nothing boots, and which
		# takes minutes.
		# shellcheck disable=SC2016
		before='chroot "$1" dpkg-divert --quiet --local --rename --add /usr/sbin/update-initramfs &&
			ln -s /bin/true "$1/usr/sbin/update-initramfs"'
	fi
	# The root passes through a tar archive, so that all files belong to the user who runs this.
	mmdebstrap --mode=$mode --variant=apt --include="$packages" "${excludes[@]}" \
		${architectures:+--architectures="$architectures"} \
		--essential-hook="$before" --customize-hook="$hook \"\$1\"" \
		"$suite" - "deb $uri $suite main" "deb $extra_uri $extra main" |
		tar -C "$dir" -x --exclude='./dev/*'
	[ "${PIPESTATUS[*]}" = "0 0" ]
}

# Sets $root to the build root in which a kernel, the library, or packages are built. The newest
# kernel's root also has the compilers for the tests, and that of the bindings also builds the
# examples: make check needs no other root. The root userlib has the checkers of code and models,
# and the tool for the coverage of the module. system-SUITE is not a build root: the packages are
# installed into it.
need_root()
{
	local packages=gcc,make,libc6-dev,sparse,kmod suite extra architectures='' hook=''
	local what="compiler and kernel"
	case $1 in
	userlib | bindings | installers | docs | plots | deb | tree | in-tree) ;;
	system-*) hook=$here/fetch-packages ;;
	*) hook=$here/fetch-kernels ;;
	esac
	case $1 in
	6.12-arm64)
		suite=bookworm
		extra=bookworm-security
		architectures=amd64,arm64
		hook=$here/fetch-arm64
		# The tools in the headers of that kernel are programs for this machine.
		packages=make,kmod,crossbuild-essential-arm64,linux-headers-6.12-cloud-amd64
		;;
	userlib)
		suite=bookworm
		extra=bookworm-security
		packages=gcc,g++,clang,make,libc6-dev,libc6-dbg,pkg-config,valgrind,mandoc,spin,gcovr
		packages+=,relacy-dev,systemtap-sdt-dev,musl-tools,bindgen,rustfmt
		# For a kernel that clang builds.
		packages+=,lld,llvm,flex,bison,bc,libelf-dev,kmod
		what="compilers and checkers"
		;;
	bindings)
		# Debian 13, for its versions of Node.js and Python.
		suite=trixie
		extra=trixie-security
		packages=g++,make,libc6-dev,python3-dev,libpython3.13-testsuite,nodejs,libnode-dev,libasio-dev,cargo
		# The event loops that the examples use.
		packages+=,librust-tokio-dev,pkg-config,libuv1-dev,libevent-dev,libglib2.0-dev,liburing-dev
		packages+=,python3-uvloop
		what="Python, Node, Rust and C++"
		;;
	installers)
		# The tools with which users install the packages for their languages. Not part of the
		# root of the bindings, because no guest needs these megabytes.
		suite=trixie
		extra=trixie-security
		packages=g++,make,libc6-dev,pkg-config,cmake,cargo,python3-dev,python3-venv,python3-pip
		packages+=,python3-setuptools,python3-build,npm,node-gyp,libnode-dev,node-typescript
		what="pip, npm, cargo and CMake"
		;;
	docs)
		# The tools that build the site, including rustdoc and Python's package for the
		# references. The root of the installers has 388 packages more, which take minutes.
		# The duration was measured on two processors, idle and busy.
		suite=trixie
		extra=trixie-security
		packages=gcc,make,libc6-dev,python3-dev,cargo
		packages+=,furo,python3-sphinx-copybutton,python3-myst-parser,mandoc
		what="Sphinx, mandoc, gcc and rustdoc, 240 MB, in 2 to 5 minutes"
		;;
	plots)
		suite=bookworm
		extra=bookworm-security
		packages=gnuplot-nox
		what="gnuplot"
		;;
	deb)
		suite=bookworm
		extra=bookworm-security
		packages=build-essential,debhelper,dh-dkms,dh-python,libnode-dev,lintian,piuparts
		packages+=,autopkgtest,python3-dev,xz-utils
		what="packaging tools"
		;;
	tree | in-tree)
		# The newest kernel source of Debian, and the tools that build it.
		suite=trixie
		extra=trixie-backports
		packages+=,flex,bison,bc,libelf-dev,perl,python3,rsync,linux-source/trixie-backports
		what="compiler and kernel source"
		;;
	system-*)
		# A system like a user's: a kernel and its headers.
		suite=${1#system-}
		extra=$suite-security
		packages=linux-image-cloud-amd64,linux-headers-cloud-amd64,systemd-sysv,udev,kmod
		packages+=,apt-utils,e2fsprogs
		what="system"
		;;
	6.1 | 6.1-rt | 6.12 | 6.12-rt | 6.12-m32 | debug | kcsan)
		suite=bookworm
		extra=bookworm-security
		packages+=,linux-headers-cloud-amd64,linux-headers-rt-amd64
		packages+=,linux-headers-6.12-cloud-amd64,linux-headers-6.12-rt-amd64
		# For the debug kernel; for tests, 32-bit programs and file systems.
		packages+=,linux-source-6.12,flex,bison,bc,libelf-dev,gcc-multilib,e2fsprogs
		what="compilers, kernels and kernel source"
		;;
	newest | newest-rt)
		suite=trixie
		extra=trixie-backports
		packages+=,linux-headers-cloud-amd64/trixie-backports
		packages+=,linux-headers-rt-amd64/trixie-backports
		# For tests: the harness and file systems.
		packages+=,linux-source-6.12,e2fsprogs
		what="compiler, kernel and kernel source"
		;;
	*)
		die "unknown kernel $1; available: $all_kernels"
		;;
	esac
	root=$cache/root-$suite-$(echo "$packages" | hash_of "${hook:-$here/fetch-kernels}")
	artefact "$root" "download Debian $suite's $what (build root)" make_root "$suite" "$packages" "$extra" \
		"$architectures" "$hook"
}

# Sets $harness to a directory with the kernel's test framework and style checkers, at their paths
# in the kernel tree.
need_harness()
{
	local root
	need_root newest
	harness=$cache/harness-${root##*-}
	artefact "$harness" "unpack kselftest" make_harness "$root"
}

make_harness()
{
	# checkpatch requires a complete tree, but reads few of its files.
	mkdir -p "$1"/{Documentation,arch,drivers,fs,init,ipc,kernel,lib} || return 1
	touch "$1"/{COPYING,CREDITS,Kbuild,MAINTAINERS,Makefile,README} || return 1
	tar -C "$1" -xJf "$2"/usr/src/linux-source-*.tar.xz --strip-components=1 --wildcards \
		'linux-source-*/tools/testing/selftests/*.mk' \
		'linux-source-*/tools/testing/selftests/kselftest*' \
		'linux-source-*/scripts/checkpatch.pl' 'linux-source-*/scripts/spelling.txt' \
		'linux-source-*/scripts/const_structs.checkpatch' \
		'linux-source-*/scripts/kernel-doc*' 'linux-source-*/include/linux/*.h'
}

# Sets $linux_source to the source of the kernels that are built here.
need_source()
{
	local root
	need_root 6.12
	linux_source=$cache/linux-source-${root##*-}
	artefact "$linux_source" "unpack kernel source" make_source "$root"
}

make_source()
{
	tar -C "$1" -xJf "$2"/usr/src/linux-source-*.tar.xz --strip-components=1
}

# Sets $linux_tree to the newest kernel source, and $root to the root in which it is built.
need_tree()
{
	need_root tree
	linux_tree=$cache/linux-tree-${root##*-}
	artefact "$linux_tree" "unpack newest kernel source" make_source "$root"
}

# Applies the driver to $1/linux, which consists of hard links to the source of need_tree. git
# replaces these files and does not write to them.
lay_into_tree()
{
	cp -al "$linux_tree" "$1/linux"
	lay_series "$1"
}

# Applies the driver to the tree $1/linux, with the series of patches in $1/series. The files that
# the series changes are put into a repository, so that git am applies the series.
lay_series()
{
	local inside=/cache/${1#"$cache/"} git=(git -C "$1/linux")
	local -x GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=test
	local -x GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=test@localhost
	"${git[@]}" init -q &&
		"${git[@]}" add -f MAINTAINERS Documentation/userspace-api drivers/misc \
			tools/testing/selftests/Makefile &&
		"${git[@]}" commit -qm base &&
		in_root "$root" gcc -O2 -static -o "$inside/unifdef" "$inside/linux/scripts/unifdef.c" ||
		return 1
	UNIFDEF=$1/unifdef "$top/packaging/in-tree" "$1/linux" "$1/series"
}

# Sets $in_tree to the files that the series depends on, except the source of the kernel.
need_in_tree_files()
{
	mapfile -t in_tree < <(find "$top"/{Kbuild,dkms.conf,module,uapi,selftests,packaging,Documentation} \
		-type f -name '*[a-z]' ! -name '*.o' ! -name '*.ko' ! -name '*.mod*' ! -name '*.svg' \
		! -path '*/vm/*' ! -path '*/lint/*' ! -path '*/userlib/*' ! -path '*/bench/*' \
		! -path '*/fuzz/*' ! -path '*/bindings/*' | sort)
	in_tree+=("$top/userlib/examples/ioctls.c")
}

# Builds the kernel, the driver as its module, and the driver's kselftests, which are installed.
make_in_tree_kernel()
{
	local dir=/cache/${1##*/}
	lay_into_tree "$1" || return 1
	cp "$here/machine.config" "$1/"
	echo CONFIG_MEMWAIT=m >"$1/memwait.config"
	# shellcheck disable=SC2016
	in_root "$root" sh -euc '
		cd "$1/linux"
		make -s O="$1" tinyconfig
		cd "$1"
		linux/scripts/kconfig/merge_config.sh -m .config machine.config memwait.config \
			linux/tools/testing/selftests/memwait/config
		make -s olddefconfig
		grep -x CONFIG_MEMWAIT=m .config
		make -s -j"$(nproc)" bzImage modules headers
		make -s -C linux/tools/testing/selftests TARGETS=memwait O="$1" \
			USERLDFLAGS=-static INSTALL_PATH="$1/installed" install
		tar -C installed -cf kselftest.tar .
		mv drivers/misc/memwait/memwait.ko .
		: >warnings
	' sh "$dir" || return 1
	rm -rf "$1"/{linux,kselftest,installed}
	find "$1" -name '*.o' -delete
}

make_own_kernel()
{
	local dir=/cache/${1##*/} source=/cache/${3##*/} name=$4
	cp "$here/machine.config" "$here/$name.config" "$1/"
	cp "$top/selftests/config" "$1/tests.config"
	in_root "$2" sh -euc "
		cd $dir
		make -s -C $source O=$dir tinyconfig
		$source/scripts/kconfig/merge_config.sh -m .config machine.config tests.config $name.config
		make -s olddefconfig
		make -s -j$(nproc) bzImage modules
	" || return 1
	# An option is dropped silently if an option that it depends on is missing.
	if sed -n 's/^\(CONFIG_[A-Z0-9_]*\)=n$/# \1 is not set/; /^\(# \)\?CONFIG_/p' \
		"$1"/{machine,tests,"$name"}.config | grep -vxFf "$1/.config"; then
		return 1
	fi
	find "$1" -name '*.o' ! -path '*/scripts/*' ! -path '*/tools/*' -delete
}

# Generates the configuration, headers and tools with which a module is built for a kernel that
# clang builds.
make_clang_kernel()
{
	local dir=/cache/${1##*/} source=/cache/${3##*/}
	cp "$here/machine.config" "$1/"
	cp "$top/selftests/config" "$1/tests.config"
	in_root "$2" sh -euc "
		cd $dir
		make -s -C $source O=$dir LLVM=1 tinyconfig
		$source/scripts/kconfig/merge_config.sh -m .config machine.config tests.config
		make -s LLVM=1 olddefconfig
		grep -x CONFIG_CC_IS_CLANG=y .config
		make -s -j$(nproc) LLVM=1 modules_prepare
	"
}

# Sets $headers (a path inside $root) to a kernel that clang builds.
need_clang_kernel()
{
	local dir
	need_source
	need_root userlib
	dir=$cache/clang-kernel-$(echo "$root $linux_source" |
		hash_of "$top/selftests/config" "$here/machine.config")
	artefact "$dir" "prepare a kernel that clang builds" make_clang_kernel "$root" "$linux_source"
	headers=/cache/${dir##*/}
}

# For the kernel named $1, sets $root, $release, $image, $headers (a path inside the root), $cc and
# $cross.
need_kernel()
{
	local dir flavour=cloud linux_source
	cc=gcc
	cross=()
	need_root "$1"
	case $1 in
	*-m32)
		cc="gcc -m32"
		;;
	*-arm64)
		cc=aarch64-linux-gnu-gcc
		cross=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-)
		for dir in "$root"/usr/src/linux-headers-*-cloud-arm64; do :; done
		[ -d "$dir" ] || die "the build root does not contain the kernel $1"
		release=${dir##*/linux-headers-}
		image=$root/boot/vmlinuz-$release
		headers=${dir#"$root"}
		return
		;;
	debug | kcsan)
		need_source
		dir=$cache/$1-kernel-$(echo "$linux_source" |
			hash_of "$top/selftests/config" "$here/machine.config" "$here/$1.config")
		artefact "$dir" "build $1 kernel" make_own_kernel "$root" "$linux_source" "$1"
		release=$(cat "$dir/include/config/kernel.release")
		image=$dir/arch/x86/boot/bzImage
		headers=/cache/${dir##*/}
		return
		;;
	in-tree)
		need_tree
		need_in_tree_files
		dir=$cache/in-tree-kernel-$(echo "$linux_tree" |
			hash_of "$here/machine.config" "${in_tree[@]}")
		artefact "$dir" "build the newest kernel with the driver" make_in_tree_kernel
		release=$(cat "$dir/include/config/kernel.release")
		image=$dir/arch/x86/boot/bzImage
		module=$dir
		return
		;;
	*-rt)
		flavour=rt
		;;
	esac
	if [ "${1%-rt}" = newest ]; then
		for dir in "$root/lib/modules/"*"-$flavour-amd64"; do :; done
	else
		for dir in "$root/lib/modules/${1%%-*}"[.+-]*"-$flavour-amd64"; do
			[ ! -d "$dir" ] || break
		done
	fi
	[ -d "$dir" ] || die "the build root does not contain the kernel $1"
	release=${dir##*/}
	image=$root/boot/vmlinuz-$release
	[ -e "$image" ] || image=$dir/vmlinuz
	headers=/lib/modules/$release/build
}

make_module()
{
	local dir=/cache/modules/${1##*/}
	cp -R "$top"/{Kbuild,dkms.conf,module,uapi} "$1/"
	# On a kernel with GCOV and KCOV, the module counts which lines are executed, and guides the
	# fuzzer. The kernel's own code is not instrumented, for speed.
	in_root "$2" make -C "$3" M="$dir" -j"$(nproc)" W=1 GCOV_PROFILE=y KCOV_INSTRUMENT=y \
		"${cross[@]}" modules 2>&1 |
		sed "s|$dir/||g" | tee "$1/build.log" || return 1
	[ -e "$1/memwait.ko" ] || return 1
	grep -E 'warning:|WARNING:' "$1/build.log" >"$1/warnings" || :
}

# Prints the names of the files from which the module is built.
module_files()
{
	find "$top"/{Kbuild,dkms.conf,module,uapi} -name '[!.]*' -type f \
		! -name '*.o' ! -name '*.mod*' | sort
}

# Sets $module to a directory with memwait.ko and warnings, built for the kernel that need_kernel
# has set.
need_module()
{
	local files
	mapfile -t files < <(module_files)
	module=$cache/modules/memwait-$(echo "$root $release $image" |
		hash_of "${files[@]}" "$here/artefacts.sh")
	artefact "$module" "build module for $release" make_module "$root" "$headers"
}

# Prints the acceleration options: KVM if a guest runs under KVM. It is not sufficient that the
# device can be opened, because on some hosts a guest hangs in its first instructions. This is
# tested once per boot of the host.
acceleration()
{
	local known
	if $icount; then
		echo "-accel tcg,thread=single -icount shift=0,sleep=off -cpu max"
		return
	fi
	known=$cache/kvm-$(cat /proc/sys/kernel/random/boot_id)
	if [ ! -e "$known" ]; then
		find "$cache" -maxdepth 1 -name 'kvm-*' ! -name "${known##*/}*" -delete
		# Without a root file system the kernel panics, which ends QEMU.
		if [ -w /dev/kvm ] && timeout 60 qemu-system-x86_64 -accel kvm -cpu host -m 512 \
			-display none -no-reboot -kernel "$image" -append panic=-1 \
			</dev/null >/dev/null 2>&1; then
			echo "-accel kvm -cpu host"
		else
			echo "-accel tcg,thread=multi -cpu max"
		fi >"$known.$BASHPID"
		mv "$known.$BASHPID" "$known"
	fi
	cat "$known"
}

# make_tests DIR ROOT HARNESS USERLIB NAME...: builds those of the tests that can be built, as
# DIR/selftests/NAME.
make_tests()
{
	local dir=/cache/tests/${1##*/} folder name
	mkdir -p "$1"/selftests/{module,hostile,userlib/stress,bench,fuzz} "$1"/userlib/{memwait,examples}
	cp -R "$top/uapi" "$1/"
	cp "$top"/selftests/Makefile "$top"/selftests/*.h "$1/selftests/"
	for folder in module hostile userlib bench fuzz; do
		cp "$top/selftests/$folder"/*.h "$1/selftests/$folder/"
	done
	for name in "${@:5}"; do
		cp "$top/selftests/$name.c" "$1/selftests/$name.c"
	done
	cp "$top"/userlib/*.h "$4"/*.a "$1/userlib/"
	cp "$top"/userlib/memwait/*.h "$1/userlib/memwait/"
	cp "$top/userlib/examples/ring.c" "$1/userlib/examples/"
	in_root "$2" make -s -k -j"$(nproc)" -C "$dir/selftests" KSELFTEST="/cache/${3##*/}/tools/testing/selftests" \
		OUTPUT="$dir/selftests" CC="$cc" USERCFLAGS='-static -Werror' TEST_GEN_PROGS="${*:5}" \
		TEST_GEN_PROGS_EXTENDED= TEST_PROGS=
}

make_test()
{
	make_tests "$@" && rm -rf "$1"/{uapi,userlib}
}

# Copies the files from which the library is built to $1.
copy_userlib()
{
	mkdir -p "$1/userlib/memwait"
	cp -R "$top"/{dkms.conf,uapi} "$1/"
	cp -R "$top"/userlib/{Makefile,*.c,*.h,*.map,*.in,*.supp,man} "$1/userlib/"
	# Objects that were built in the checkout are omitted, because make would consider their
	# copies up to date.
	cp "$top"/userlib/memwait/*.[ch] "$1/userlib/memwait/"
	mkdir -p "$1"/userlib/{tools,bindings/cxx/memwait}
	cp "$top"/userlib/tools/{Makefile,*.c,*.bash} "$1/userlib/tools/"
	cp "$top"/userlib/bindings/cxx/{Makefile,README.md,memwait.hpp} "$1/userlib/bindings/cxx/"
	cp "$top/userlib/bindings/cxx/memwait/task.hpp" "$1/userlib/bindings/cxx/memwait/"
}

make_userlib()
{
	copy_userlib "$1"
	in_root "$2" make -s -C "/cache/tests/${1##*/}/userlib" CC="$cc" all || return 1
	rm "$1/userlib/tools/memwaitctl" || return 1
	in_root "$2" make -s -C "/cache/tests/${1##*/}/userlib/tools" CC="$cc" LDFLAGS=-static all ||
		return 1
	mv "$1"/userlib/libmemwait*.* "$1/userlib/tools/memwaitctl" "$1/"
}

# Sets $root to the build root that contains $cc.
need_compiler()
{
	case $cc in
	aarch64-*) need_root 6.12-arm64 ;;
	*-m32) need_root 6.12-m32 ;;
	*) need_root newest ;;
	esac
}

# Sets $userlib to a directory with the library, built for linking with tests.
need_userlib()
{
	local root
	need_compiler
	userlib=$cache/tests/userlib-$(echo "$cc $root" |
		hash_of "$top"/userlib/{Makefile,{,memwait/}*.[ch],*.map} \
		"$top"/userlib/tools/{Makefile,*.c} "$top"/uapi/linux/*.h)
	artefact "$userlib" "build library" make_userlib "$root"
}

# For the compiler $cc, once: the directories that a test is built with, and a hash of everything
# else that the tests of a folder depend on.
declare -A harness_of root_of userlib_of inputs_of

# Sets $harness, $root and $userlib, and $dir to the directory of the test $1 in the cache.
need_test_parts()
{
	local folder=${1%%/*} files=("$top"/selftests/*.h "$top"/uapi/linux/*.h)
	if [ -z "${userlib_of[$cc]:-}" ]; then
		need_harness
		need_compiler
		need_userlib
		harness_of[$cc]=$harness
		root_of[$cc]=$root
		userlib_of[$cc]=$userlib
	fi
	harness=${harness_of[$cc]}
	root=${root_of[$cc]}
	userlib=${userlib_of[$cc]}
	if [ -z "${inputs_of[$folder $cc]:-}" ]; then
		case $folder in
		module | hostile) files+=("$top"/selftests/{module,hostile}/*.h) ;;
		userlib) files+=("$top"/selftests/userlib/*.h "$top"/userlib/{,memwait/}*.[ch]) ;;
		bench)
			# One of the programs includes an example.
			files+=("$top"/selftests/bench/*.h "$top"/userlib/{,memwait/}*.[ch])
			files+=("$top/userlib/examples/ring.c")
			;;
		fuzz) files+=("$top"/selftests/fuzz/*.h) ;;
		esac
		inputs_of[$folder $cc]=$(echo "$harness $root $cc" |
			hash_of "$top/selftests/Makefile" "$here/artefacts.sh" "${files[@]}")
	fi
	dir=$cache/tests/${1//\//-}-$(echo "${inputs_of[$folder $cc]}" | hash_of "$top/selftests/$1.c")
}

# Sets $test to the statically linked program of the test $1, and $userlib.
need_test()
{
	local root harness dir
	need_test_parts "$1"
	artefact "$dir" "build test $1" make_test "$root" "$harness" "$userlib" "$1"
	test=$dir/selftests/$1
}

# take_test DIR BATCH NAME
take_test()
{
	mkdir -p "$1/selftests/${3%/*}"
	mv "$2/selftests/$3" "$1/selftests/$3"
}

# need_tests NAME...: builds the tests that are not in the cache, in one run of make. need_test then
# builds the failed tests once more, and shows why they fail.
need_tests()
{
	local root harness dir name batch missing=()
	for name; do
		case $name in *.sh) continue ;; esac
		need_test_parts "$name"
		[ -d "$dir" ] || missing+=("$name")
	done
	[ ${#missing[@]} -gt 1 ] || return 0
	mkdir -p "$cache/tests"
	batch=$(mktemp -d "$cache/tests/batch-XXXXXXXXXXXXXXXX")
	step "build ${#missing[@]} tests" make_tests "$batch" "$root" "$harness" "$userlib" "${missing[@]}" || :
	for name in "${missing[@]}"; do
		need_test_parts "$name"
		[ ! -x "$batch/selftests/$name" ] || artefact "$dir" "" take_test "$batch" "$name"
	done
	rm -rf "$batch"
}

# Sets $demo to the statically linked demo.
need_demo()
{
	local root dir userlib
	need_compiler
	need_userlib
	dir=$cache/tests/demo-$(echo "$userlib" | hash_of "$top"/userlib/examples/demo/{Makefile,*.[ch]})
	artefact "$dir" "build demo" make_demo "$root" "$userlib"
	demo=$dir/userlib/examples/demo/memwait-demo
}

make_demo()
{
	mkdir -p "$1/userlib/examples/demo"
	cp -R "$top/uapi" "$1/"
	cp "$top"/userlib/*.h "$3"/*.a "$1/userlib/"
	cp "$top"/userlib/examples/demo/{Makefile,*.[ch]} "$1/userlib/examples/demo/"
	in_root "$2" make -s -C "/cache/tests/${1##*/}/userlib/examples/demo"
}

# Sets $examples to a directory with the example programs in bin/, and the libraries that they are
# linked with in lib/.
need_examples()
{
	local root files
	need_root bindings
	mapfile -t files < <(find "$top"/userlib -name '*.[ch0-9]' -o -name Makefile -o -name '*.in' \
		-o -name '*.map' -o -name '*.txt' | sort)
	examples=$cache/tests/examples-$(echo "$root" | hash_of "${files[@]}" "$top/dkms.conf" \
		"$top"/README.md "$top"/uapi/linux/*.h)
	artefact "$examples" "build examples" make_examples "$root"
}

make_examples()
{
	local dir=/cache/tests/${1##*/}
	copy_userlib "$1"
	mkdir -p "$1/userlib/examples" "$1/lib"
	cp "$top"/userlib/examples/{Makefile,*.{c,txt}} "$1/userlib/examples/"
	cp "$top/README.md" "$1/"
	# Install the library into a directory where no system looks; pkg-config and ldd find it.
	in_root "$2" sh -euc "
		make -s -C $dir/userlib install PREFIX=$dir/usr
		export PKG_CONFIG_PATH=$dir/usr/lib/pkgconfig LD_LIBRARY_PATH=$dir/usr/lib
		make -s -C $dir/userlib/examples all manual OUT=$dir/bin
		cd $dir
		rm -f bin/*.c
		for library in \$(ldd bin/* | grep -o '/[^ ]*' | grep -v ':\$' | sort -u); do
			case \$library in
			/lib*/ld-*) install -D \$library lib/.\$library ;;
			*) cp -L \$library lib/ ;;
			esac
		done
		cp userlib/examples/*.txt bin/
		rm -rf userlib uapi usr README.md
	"
}

# Sets $languages to a directory with the files that programs of the bindings need in a guest, at
# their usual paths and with their libraries, in cxx/, python/ and node/. sanitize/ and races/ have the
# libraries of the sanitizers, and suites/ has some of CPython's tests.
need_languages()
{
	local root
	need_root bindings
	languages=$cache/languages-$(echo "$root" | hash_of "$here/artefacts.sh")
	artefact "$languages" "gather Python, Node and C++ for a guest" make_languages "$root"
}

make_languages()
{
	# shellcheck disable=SC2016
	in_root "$2" sh -euc '
		cd "$1"
		# add FOLDER FILE...: copies files, and the libraries that they are linked with
		add()
		{
			folder=$1
			shift
			mkdir -p "$folder"
			cp -a --parents "$@" "$folder"
			find "$folder" -type f \( -name "*.so*" -o -path "*/bin/*" \) -exec ldd {} + 2>/dev/null |
				grep -o "/[^ ]*lib[^ ]*\.so[^ ]*" | grep -v ":\$" | sort -u |
				xargs cp -L --parents --update -t "$folder"
		}
		add cxx /usr/lib/x86_64-linux-gnu/libstdc++.so.6*
		add node /usr/bin/node /usr/share/nodejs
		add sanitize $(realpath $(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so))
		add races /usr/lib/x86_64-linux-gnu/libtsan.so.2*
		python=$(readlink /usr/bin/python3)
		add python /usr/bin/python3 "/usr/bin/$python" "/usr/lib/$python" /usr/lib/python3/dist-packages/uvloop
		mkdir suites
		tests=/usr/lib/$python/test
		cp -a --parents -t suites "$tests/__init__.py" "$tests/support" "$tests/lock_tests.py" \
			"$tests/test_queue.py" "$tests/_test_multiprocessing.py" "$tests/test_asyncio/__init__.py" \
			"$tests/test_asyncio/utils.py" "$tests/test_asyncio/test_locks.py"
		cd "python/usr/lib/$python"
		rm -rf test idlelib tkinter turtledemo ensurepip pydoc_data config-* lib2to3
	' sh "/cache/${1##*/}"
}

# Sets $bindings to a directory whose guest/ has the installed bindings and their tests.
need_bindings()
{
	local root files
	need_root bindings
	mapfile -t files < <(find "$top"/userlib "$top"/selftests/bindings -type f \
		! -path '*/examples/*' ! -path '*/target/*' ! -name Cargo.lock \
		! -name '*.o' ! -name '*.so*' ! -name '*.a' ! -name '*.pyc' | sort)
	mapfile -O ${#files[@]} -t files < <(find "$top"/userlib/bindings/{*,rust/memwait}/examples -type f \
		2>/dev/null | sort)
	bindings=$cache/tests/bindings-$(echo "$root" | hash_of "${files[@]}" "$top/dkms.conf" \
		"$top"/uapi/linux/*.h "$here/artefacts.sh")
	artefact "$bindings" "build bindings" make_bindings "$root"
}

make_bindings()
{
	local dir=/cache/tests/${1##*/}
	copy_userlib "$1"
	mkdir -p "$1"/{selftests,guest/tests/bindings}
	cp -R "$top"/userlib/bindings "$1/userlib/"
	cp -R "$top"/selftests/bindings "$1/selftests/"
	in_root "$2" sh -euc "
		cd $dir
		make -s -C userlib all
		make -s -C userlib install PREFIX=/usr LIBDIR=/usr/lib/x86_64-linux-gnu DESTDIR=$dir/guest
		make -s -C userlib/bindings clean
		make -s -C userlib/bindings all
		(umask 077; make -s -C userlib/bindings install PREFIX=/usr DESTDIR=$dir/guest)
		# All users must be able to read the files that a user with this umask installs.
		! find $dir/guest/usr -type f ! -perm -a=r | grep .
		make -s -C selftests/bindings clean all
		make -s -C userlib/bindings/rust check
		# Programs have been copied from target/.
		rm -rf userlib/bindings/rust/target
	" || return 1
	cp -R "$1"/selftests/bindings/{*/,tap} "$1/guest/tests/bindings/"
	cp -R "$1/userlib/bindings" "$1/guest/tests/bindings/userlib"
	rm -rf "$1"/{userlib,uapi} "$1"/guest/usr/share/man
}
