#!/bin/sh
# Makes this machine able to run Pillarbox, and does nothing where it already is.
#
#   vagrant/provision.sh           as root: Debian's packages and the Python environment;
#                                  without root: the Python environment only
#   vagrant/provision.sh --ready   print where a ready environment is, or exit 1
#
# The Python environment is a venv on Debian's own python3, sealed off from Debian's Python
# packages except for Mininet, which is linked in. Its stamp is written last, so that a run
# that was killed is known by its unfinished stamp and begun again. Progress goes to standard
# output; a failure is one sentence on standard error and a non-zero exit.
#
# Environment: PILLARBOX_VENV (where the venv is), PILLARBOX_PYTHON (which python3),
# PILLARBOX_LOG (the full log), PILLARBOX_DIST_PACKAGES (where Debian's Mininet is),
# PILLARBOX_BROWSER (if set, Chromium as well, for the live page's test), PILLARBOX_OPENFLOW (if set,
# Open vSwitch, os-ken and Ryu as well: `pillarbox setup openflow`), PILLARBOX_MPI (if set, Open MPI
# and mpi4py as well: `pillarbox setup mpi`), PILLARBOX_TESTS (if set, what tests skip without it),
# PILLARBOX_PARTS (parts of requirements.lock besides `lab`: simulator, machines, tests; commands
# that need one ask for it).
# pip is configured as always: PIP_* or pip.conf.
set -u
umask 022
unset PYTHONHOME PYTHONPATH LANGUAGE
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
LC_ALL=C.UTF-8
export PATH LC_ALL

scripts=$(dirname -- "$(readlink -f -- "$0")")
checkout=$(dirname -- "$scripts")
lock=$scripts/requirements.lock
python=${PILLARBOX_PYTHON:-/usr/bin/python3}
dist_packages=${PILLARBOX_DIST_PACKAGES:-/usr/lib/python3/dist-packages}
user_id=$(id -u)

# What Mininet's own package does not bring: brctl for its bridges, ethtool for its shaped
# links, ping and killall for its tests; clang and libbpf make the eBPF programs and load them;
# tshark dissects captures; libseccomp seals students' files; openssl makes the certificate of a page
# that a network can reach. None of these starts a service, so
# that a machine without an init (a chroot) is no special case. Two ask a question, and take no
# answer for a no: iperf3, whether to start one, and tshark, whether others than root may capture.
packages="bridge-utils clang ethtool iperf3 iproute2 iputils-ping kmod
    libbpf-dev libseccomp2 mininet net-tools openssl procps psmisc python3 python3-venv tcpdump tshark"
commands="brctl clang ethtool ifconfig ip iperf3 killall mn mnexec modprobe openssl ping ps tcpdump tshark"

parts=${PILLARBOX_PARTS:-}

# What tests use and few else need. Debian has a Chromium as a package, and Ubuntu has none.
if [ -n "${PILLARBOX_TESTS:-}" ]; then
    PILLARBOX_OPENFLOW=1 PILLARBOX_MPI=1 parts=tests
    packages="$packages openssh-server" commands="$commands sshd ssh"
    grep -qs '^ID=debian' /etc/os-release && PILLARBOX_BROWSER=1
fi

# For the live page's test only.
if [ -n "${PILLARBOX_BROWSER:-}" ]; then
    packages="$packages chromium" commands="$commands chromium"
fi

# For the switches of `up --plane ovs`: Open vSwitch, whose package starts a service where there is
# an init, and the kits of its OpenFlow controller, which are installed into the environment.
if [ -n "${PILLARBOX_OPENFLOW:-}" ]; then
    packages="$packages openvswitch-switch" commands="$commands ovs-vswitchd ovsdb-server"
fi

# For `pillarbox mpirun`: Open MPI, and mpi4py for Debian's own python3.
if [ -n "${PILLARBOX_MPI:-}" ]; then
    packages="$packages openmpi-bin python3-mpi4py" commands="$commands mpirun.openmpi"
fi

# ---------------------------------------------------------------- Is this machine ready?

# What a stamp must say: whose interpreter and which checkout the venv was made for (a change
# means a new venv), then a checksum of what decides its contents (a change means an update).
wanted_stamp() {
    readlink -f -- "$python"
    printf '%s\n' "$checkout"
    cat -- "$checkout/setup.py" "$scripts/provision.sh" "$lock" | cksum
}

venv_places() {
    if [ -n "${PILLARBOX_VENV:-}" ]; then
        readlink -m -- "$PILLARBOX_VENV"
        return
    fi
    printf '%s\n' "$checkout/.venv"
    [ "$user_id" -eq 0 ] || private_venv
    printf '%s\n' /var/lib/pillarbox/venv
}

private_venv() {
    [ -z "${HOME:-}" ] || printf '%s\n' "${XDG_DATA_HOME:-$HOME/.local/share}/pillarbox/venv"
}

stamp_of() {
    cat -- "$1/pillarbox.stamp" 2>/dev/null
}

# Whether a venv was made by this interpreter for this checkout, up to date or not.
is_ours() {
    [ "$(stamp_of "$1" | head -n 2)" = "$(wanted_stamp | head -n 2)" ]
}

has_package() {
    for package in "$1"/lib/python3*/site-packages/"$2"; do
        [ -e "$package" ] && return 0
    done
    return 1
}

has_openflow() {
    has_package "$1" os_ken && has_package "$1" ryu
}

# Whether a venv has all parts that are asked for; `tests` includes the others.
has_parts() {
    for part in $parts; do
        grep -qsxE -- "$part|tests" "$1/pillarbox.parts" || return 1
    done
}

missing_commands() {
    for command in $commands; do
        command -v "$command" >/dev/null || printf ' %s' "$command"
    done
    [ -e /usr/include/bpf/bpf_helpers.h ] || printf ' libbpf-dev'
    [ -z "${PILLARBOX_MPI:-}" ] || [ -e "$dist_packages/mpi4py" ] || printf ' python3-mpi4py'
}

# Prints the venv that is complete, if there is one.
ready() {
    [ "$user_id" -ne 0 ] || [ -z "$(missing_commands)" ] || return 1
    wanted=$(wanted_stamp)
    venv_places | while read -r place; do
        if [ -x "$place/bin/python" ] && [ "$(stamp_of "$place")" = "$wanted" ] &&
            { [ -z "${PILLARBOX_OPENFLOW:-}" ] || has_openflow "$place"; } && has_parts "$place" &&
            { [ ! -d "$dist_packages/mininet" ] || has_package "$place" mininet; }; then
            printf '%s\n' "$place"
            break
        fi
    done | grep .
}

case ${1:-} in
    --ready) ready; exit ;;
    "") ready >/dev/null && exit 0 ;;
    *) printf 'pillarbox: provision.sh knows no %s; it takes --ready or nothing.\n' "$1" >&2; exit 2 ;;
esac

# ---------------------------------------------------------------- Saying what is done

say() {
    printf 'pillarbox: %s\n' "$*"
}

# One sentence: what is wrong, then the command that mends it.
fail() {
    printf 'pillarbox: %s; %s (full log: %s).\n' "$1" "$2" "$log" >&3
    exit 1
}

open_log() {
    log=${PILLARBOX_LOG:-}
    if [ -z "$log" ]; then
        if [ "$user_id" -eq 0 ]; then
            log=/var/log/pillarbox-provision.log
        else
            log=${XDG_STATE_HOME:-${HOME:-/nonexistent}/.local/state}/pillarbox/provision.log
        fi
    fi
    mkdir -p -- "$(dirname -- "$log")" 2>/dev/null
    # Not ":", a special builtin: a failed redirection of one ends a POSIX shell.
    if ! { true >"$log"; } 2>/dev/null; then
        log=$(mktemp 2>/dev/null) || log=/dev/null
    fi
}

# In a subshell, so that a signal finds this shell's own descriptors in their places; without
# the one for sentences, which whoever reads them would else wait for as long as a program runs.
logged() {
    ("$@") >>"$log" 2>&1 </dev/null 3>&-
}

in_log() {
    grep -qE -- "$1" "$log" 2>/dev/null
}

# Fails with the disk's sentence if a disk was full.
fail_if_full() {
    for place in "$@" "${TMPDIR:-/tmp}"; do
        while [ ! -e "$place" ]; do place=$(dirname -- "$place"); done
        free_kib=$(df -Pk -- "$place" 2>/dev/null | awk 'NR == 2 { print $4 }')
        if [ "${free_kib:-999999}" -lt 65536 ]; then
            fail "the disk that holds $place is full" \
                "find what fills it with 'du -xh $place | sort -h | tail', then run it again"
        fi
    done
    if in_log 'No space left on device|not have enough free space'; then
        fail "a disk was full" "find which with 'df -h', free some 2 GB and run it again"
    fi
}

unreachable='Temporary failure|Could not resolve|Could not connect|Unable to connect|Failed to fetch'
unreachable="$unreachable|Network is unreachable|Connection (refused|timed out|failed|reset)"
unreachable="$unreachable|NewConnectionError|Max retries|ProxyError|ReadTimeout|Name or service"

# shellcheck disable=SC1091 # next to this script
. "$scripts/debian_packages.sh"

# ---------------------------------------------------------------- The Python environment

# Root works in a checkout of somebody else's as that somebody, so that what it leaves there can
# be removed by its owner, and the owner's pip configuration is found.
as_owner() {
    if [ "$user_id" -ne 0 ] || [ "$owner_id" -eq 0 ]; then
        "$@"
        return
    fi
    home=$(getent passwd "$owner_id" | cut -d: -f6)
    env -u TMPDIR -u XDG_CACHE_HOME -u XDG_CONFIG_HOME HOME="${home:-/nonexistent}" \
        setpriv --reuid="$owner_id" --regid="$owner_gid" --clear-groups -- "$@"
}

# A folder of another machine may have that one's venv, or refuse symbolic links; a medium may be
# read-only, and the venv that is there may be somebody else's.
can_hold_venv() {
    case $(stat -f -c %T -- "$checkout") in
        vboxsf | prl_fs | v9fs | vmhgfs | fuse*) return 1 ;;
    esac
    as_owner test -w "$checkout" || return 1
    [ ! -e "$checkout/.venv" ] || as_owner test -w "$checkout/.venv" || return 1
    probe=$checkout/.venv-probe.$$
    logged as_owner ln -s . "$probe" && logged as_owner rm -f -- "$probe"
}

choose_venv() {
    owner_id=$(stat -c %u -- "$checkout")
    owner_gid=$(stat -c %g -- "$checkout")
    logged as_owner true || owner_id=0
    if [ -n "${PILLARBOX_VENV:-}" ]; then
        venv=$(readlink -m -- "$PILLARBOX_VENV")
    elif [ "$user_id" -eq 0 ]; then
        venv=/var/lib/pillarbox/venv
    else
        venv=$(private_venv)
    fi
    if [ -z "${PILLARBOX_VENV:-}" ] && ! is_ours "$venv" && can_hold_venv; then
        venv=$checkout/.venv
        return
    fi
    owner_id=$user_id
    [ -n "$venv" ] || fail "$checkout cannot hold the Python environment and HOME is not set" \
        "name a place with 'PILLARBOX_VENV=/some/where ./pillarbox'"
}

# Held until this script ends, by pip too: should only this script be killed, the next one waits
# for the pip that it left behind.
lock_venv() {
    parent=$(dirname -- "$venv")
    logged as_owner mkdir -p -- "$parent"
    [ -r "$parent" ] || explain_venv "$parent cannot be made"
    exec 9<"$parent"
    logged flock -n 9 && return
    say "waiting for another provisioning run"
    # Whoever may read the folder can lock it, so the wait has an end.
    logged flock -w 1800 9 || fail "$parent is locked by another process" \
        "see which with 'lslocks', and end it"
}

write_stamp() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    as_owner sh -c 'printf "%s\n" "$2" >"$1.new" && mv -f -- "$1.new" "$1"' sh \
        "$venv/pillarbox.stamp" "$1" || explain_venv "$venv cannot be written"
}

check_python() {
    [ -x "$python" ] || fail "there is no $python" \
        "install it with 'sudo apt-get install python3 python3-venv'"
    logged "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail \
        "$python is not Python 3.10 or later" \
        "use Debian 12, Ubuntu 22.04 or later, or name another with 'PILLARBOX_PYTHON=/path/to/python3 ./pillarbox'"
    logged "$python" -I -c 'import ensurepip, venv' || fail \
        "Python's venv module is missing" "install it with 'sudo apt-get install python3-venv'"
}

make_venv() {
    found=$(stamp_of "$venv")
    [ ! -x "$venv/bin/python" ] || ! is_ours "$venv" || return
    if [ -z "$found" ] && [ -n "$(ls -A -- "$venv" 2>/dev/null)" ]; then
        fail "$venv is there already and is not Pillarbox's" "move it away with 'mv $venv $venv.old'"
    fi
    say "making the Python environment in $venv"
    found=
    logged as_owner mkdir -p -- "$venv"
    write_stamp unfinished
    logged as_owner find "$venv" -mindepth 1 ! -path "$venv/pillarbox.stamp" ! -path "$venv/pillarbox.parts" -delete
    logged as_owner "$python" -I -m venv "$venv" || explain_venv "the Python environment cannot be made"
}

# sudo strips the environment, and with it the certificates that a company's network needs.
find_certificates() {
    [ -z "${PIP_CERT:-}" ] || return
    logged as_owner "$venv/bin/python" -I -m pip config get global.cert && return
    logged as_owner "$venv/bin/python" -I -m pip config get install.cert && return
    for bundle in "${REQUESTS_CA_BUNDLE:-}" "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt; do
        if [ -r "$bundle" ]; then
            export PIP_CERT="$bundle"
            return
        fi
    done
}

is_locked() {
    version=$(as_owner "$venv/bin/python" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [ -n "$version" ] && grep -q "^# Python:.* $version\\b" -- "$lock" &&
        grep -q "^# Machines:.* $(uname -m)\\b" -- "$lock" && return
    say "vagrant/requirements.lock is not for this Python and machine: packages come without hashes"
    return 1
}

# A recent pip first: Debian's takes twice as long. With what builds in the environment itself,
# nothing is built in one made for it. Metadata is built in a folder of its own, for the checkout
# may be read-only; setuptools and packaging also are what Mininet imports on a Python without
# distutils.
#
# Without arguments: the chosen parts of requirements.lock, each file checked by its hash, and the
# checkout; where the lock is not for this Python or machine, whatever setup.py allows. With one:
# the checkout with extras. Packages are not compiled: importing compiles what is used.
pip_install() {
    work=$(as_owner mktemp -d) || return 1
    if [ $# -eq 0 ] && is_locked; then
        # shellcheck disable=SC2016 # expanded by the inner shell
        logged as_owner sh -c 'grep -E "^(pip|packaging|setuptools|wheel)==" -- "$1" >"$2/building.lock" &&
            awk -v parts=" $3 " "/^# Part: /{on = index(parts, \" \" \$3 \" \")} on && !/^#/" "$1" >"$2/parts.lock"' \
            sh "$lock" "$work" "$chosen"
        building="--require-hashes -r $work/building.lock" locked=$work/parts.lock what=.
    else
        building="pip packaging setuptools wheel" locked='' what=${1:-.[$(extras)]}
    fi
    # shellcheck disable=SC2016 # expanded by the inner shell
    logged as_owner sh -c 'printf "[egg_info]\negg_base = %s\n[build]\nbuild_base = %s\n" "$1" "$1" >"$1/extra.cfg"' sh "$work"
    # shellcheck disable=SC2016 # expanded by the inner shell
    logged as_owner env DIST_EXTRA_CONFIG="$work/extra.cfg" PIP_USER=0 PIP_NO_INPUT=1 PIP_COMPILE=0 \
        PIP_DISABLE_PIP_VERSION_CHECK=1 sh -c 'cd -- "$1" &&
            "$2" -I -m pip install --upgrade $3 || exit
            [ -n "$4" ] || exec "$2" -I -m pip install --no-build-isolation -e "$5"
            "$2" -I -m pip install --upgrade --require-hashes -r "$4" &&
            exec "$2" -I -m pip install --no-build-isolation --no-deps -e "$5"' \
        sh "$checkout" "$venv/bin/python" "$building" "$locked" "$what"
    code=$?
    as_owner rm -rf -- "$work"
    return "$code"
}

extras() {
    printf lab
    for part in $chosen; do
        case $part in
            simulator) printf ,sim ;;
            machines) printf ,dask ;;
            tests) printf ,test,bench ;;
        esac
    done
}

# Sets `chosen`: the parts that the venv has, and those that are asked for.
choose_parts() {
    asked=" $parts $(echo $(cat -- "$venv/pillarbox.parts" 2>/dev/null)) " chosen=lab
    for part in simulator machines tests; do
        case $asked in *" $part "* | *" tests "*) chosen="$chosen $part" ;; esac
    done
}

# Print the number of installed packages whenever it grows, until the given file is removed.
show_progress() {
    said=0
    while logged sleep 3 && [ -e "$1" ]; do
        set -- "$1" "$venv"/lib/python3*/site-packages/*.dist-info
        [ $# -eq "$said" ] || say "$(($# - 1)) packages are installed"
        said=$#
    done
}

# What packages bring for their own developers is removed: a tenth of the whole.
remove_tests() {
    for package in matplotlib numpy pandas pyarrow scipy; do
        logged as_owner find "$venv"/lib/python3*/site-packages/"$package" \
            \( -name tests -o -path '*/pyarrow/include' \) -type d -prune -exec rm -rf -- {} +
    done
}

# Ryu's last release is built by setuptools of its time.
install_kits() {
    say "installing the kits of OpenFlow controllers, os-ken and Ryu"
    find_certificates
    pip_install ".[ovs]" || explain_pip
    constraints=$(as_owner mktemp) || explain_pip
    # shellcheck disable=SC2016 # expanded by the inner shell
    logged as_owner env PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 sh -c '
        echo "setuptools<67.7" >"$2"
        exec "$1" -I -m pip install --build-constraint "$2" "ryu==4.34"' \
        sh "$venv/bin/python" "$constraints"
    code=$?
    as_owner rm -f -- "$constraints"
    [ "$code" -eq 0 ] || explain_pip
}

link_mininet() {
    [ -d "$dist_packages/mininet" ] || return 0
    for site in "$venv"/lib/python3*/site-packages; do
        logged as_owner ln -sfn -- "$dist_packages/mininet" "$site/mininet"
    done
}

# By the venv's owner: root's first lab would else leave something of root's in it. Where it fails,
# servers forward in Python, and `pillarbox up --plane ebpf` says why.
compile_programs() {
    command -v clang >/dev/null || return 0
    logged as_owner "$venv/bin/python" -I -c 'from pillarbox.hosts.live import lab_programs; lab_programs.build()' ||
        say "the eBPF programs cannot be compiled, so that servers will forward in Python" \
            "(full log: $log)"
}

provision_venv() {
    choose_venv
    lock_venv
    make_venv
    if [ "$found" != "$(wanted_stamp)" ] || ! has_parts "$venv"; then
        choose_parts
        say "installing Python packages in $venv (about a minute, once; parts: $(echo $chosen))"
        write_stamp unfinished
        find_certificates
        running=$(mktemp)
        show_progress "$running" 9>&- &
        progress=$!
        pip_install
        code=$?
        rm -f -- "$running"
        kill "$progress" 2>/dev/null || true
        if [ "$code" -ne 0 ]; then
            # pip fetches before it changes anything: an environment that worked still does.
            [ -z "$found" ] || write_stamp "$found"
            explain_pip
        fi
        remove_tests
        # shellcheck disable=SC2016 # expanded by the inner shell
        as_owner sh -c 'printf "%s\n" $2 >"$1"' sh "$venv/pillarbox.parts" "$chosen" ||
            explain_venv "$venv cannot be written"
        logged as_owner "$venv/bin/python" -I -m compileall -q \
            "$checkout/src/pillarbox"/*.py "$checkout/topos" "$checkout/hosts" "$checkout/experiments"
        # By the venv's owner: what root compiles later, the owner could not remove.
        logged as_owner "$venv/bin/python" -I -c \
            'import pillarbox.experiments.apps.page.server, pillarbox.experiments.runs.reporting.report_page, pillarbox.experiments.runs.trials.experiment_run'
    fi
    link_mininet
    compile_programs
    if [ "$user_id" -eq 0 ]; then
        logged "$venv/bin/python" -I -W ignore -c 'import mininet.node' || fail \
            "Debian's Mininet cannot be imported from $venv" \
            "mend it with 'sudo apt-get install --reinstall mininet'"
    fi
    write_stamp "$(wanted_stamp)"
    # Behind the stamp: an environment without them is whole.
    [ -z "${PILLARBOX_OPENFLOW:-}" ] || has_openflow "$venv" || install_kits
}

explain_venv() {
    fail_if_full "$venv"
    fail "$1" "name another place with 'PILLARBOX_VENV=/some/where ./pillarbox'"
}

explain_pip() {
    fail_if_full "$venv"
    if in_log 'CERTIFICATE_VERIFY_FAILED|certificate verify failed'; then
        fail "pip does not trust the certificate of the package index" \
            "name your network's certificates with 'PIP_CERT=/path/to/bundle.crt ./pillarbox' (after sudo, if you use it)"
    elif in_log "$unreachable"; then
        fail "pip cannot reach the package index" \
            "mend the network, or name your mirror with 'pip config set global.index-url URL'"
    elif in_log 'No matching distribution|Could not find a version'; then
        fail "the package index does not have all that is needed" \
            "see which package it lacks with 'grep ERROR $log'"
    fi
    fail "pip could not install the Python packages" "see why with 'grep -A5 ERROR $log'"
}

open_log
# What shells and tools say by themselves is for the log; standard error gets one sentence.
exec 3>&2 2>>"$log"
trap 'fail "provisioning was interrupted" "it goes on with the next '"'./pillarbox'"'"' HUP INT TERM
[ "$user_id" -ne 0 ] || provision_packages
check_python
provision_venv
say "ready"
