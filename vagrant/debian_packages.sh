#!/bin/sh
# Installs Debian's packages: a part of provision.sh, which reads this file and calls
# provision_packages, as root.
# shellcheck disable=SC2154,SC2329 # provision.sh sets the variables and calls the functions

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing_packages() {
    for package in $packages; do
        installed "$package" || printf ' %s' "$package"
    done
}

# python3-venv brings ca-certificates, which rewrites the machine's bundle: what somebody put
# there by hand (a company's own authority, say) is kept among the local certificates.
keep_certificates() {
    bundle=/etc/ssl/certs/ca-certificates.crt
    if [ -s "$bundle" ] && ! installed ca-certificates; then
        logged mkdir -p /usr/local/share/ca-certificates
        logged cp -- "$bundle" /usr/local/share/ca-certificates/kept-by-pillarbox.crt
    fi
}

# Without the venv's lock (9): a program that a package starts would hold it for ever.
apt() {
    logged env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 \
        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" 9<&-
}

# apt-get waits for dpkg's lock by itself, but not for that of the package lists.
update_lists() {
    tries=0
    until apt update; do
        tail -n 5 -- "$log" | grep -q 'lists/lock' || return 1
        tries=$((tries + 1))
        [ "$tries" -lt 120 ] || return 1
        sleep 5
    done
}

install_packages() {
    # shellcheck disable=SC2086 # a list of names
    apt install --no-install-recommends --fix-broken $missing && return
    in_log 'dpkg was interrupted|dpkg --configure -a' || return 1
    logged env DEBIAN_FRONTEND=noninteractive dpkg --configure -a --force-confold
    # shellcheck disable=SC2086 # a list of names
    apt install --no-install-recommends --fix-broken $missing
}

provision_packages() {
    if ! command -v apt-get || ! command -v dpkg-query; then
        missing=$(missing_commands)
        [ -n "$missing" ] || return 0
        fail "this is not Debian or Ubuntu, and it has no$missing" \
            "install them by hand, or run Pillarbox in its virtual machine with 'cd vagrant && vagrant up'"
    fi >/dev/null
    missing=$(missing_packages)
    if [ -n "$missing" ]; then
        say "installing Debian's$missing (a few minutes, once)"
        keep_certificates
        if ! update_lists || ! install_packages; then explain_apt; fi
    fi
    missing=$(missing_commands)
    # shellcheck disable=SC2086,SC2116 # a list of names, on one line
    [ -z "$missing" ] || fail "the packages are installed, but there is no$missing" \
        "mend them with 'sudo apt-get install --reinstall $(echo $packages)'"
}

explain_apt() {
    fail_if_full /var/cache/apt /usr
    if in_log 'Could not get lock|Unable to acquire the dpkg'; then
        fail "another program keeps apt busy" "see which with 'ps -C apt,apt-get,dpkg,unattended-upgr'"
    elif in_log "$unreachable"; then
        fail "apt cannot reach its package servers, so$missing cannot be installed" \
            "mend the network or apt's sources until 'sudo apt-get update' succeeds"
    elif in_log 'Unable to locate package|no installation candidate'; then
        fail "apt's sources do not have all of$missing" \
            "on Ubuntu, 'sudo add-apt-repository -y universe' adds the rest; Debian 12 has them all in main"
    fi
    fail "apt-get could not install$missing" "mend it with 'sudo apt-get install --fix-broken$missing'"
}
