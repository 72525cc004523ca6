#!/bin/sh
# Prints a command's help from docs/commands.md, or the list of commands: until there is a Python
# environment, which prints the same from the commands' own texts.
set -eu
page=$(dirname -- "$(readlink -f -- "$0")")/../docs/commands.md
name=
for word; do
    case $word in -*) ;; *) name="${name:+$name }$word" ;; esac
done
if [ -n "$name" ] && grep -qx "## $name" "$page"; then
    awk -v name="## $name" '
        /^## / { on = $0 == name; next }
        on && !/^\| option|^\|---|^JSON:/ { gsub(/`/, ""); gsub(/\\\|/, "|"); sub(/^\| /, "  "); sub(/ \|$/, ""); print }
    ' "$page"
    exit
fi
cat <<'END'
Usage: pillarbox [OPTIONS] COMMAND [ARGS]...

A testbed for server-centric data center networks: DPillar, DCell, BCube and FiConn.
The first command other than --help installs what Pillarbox needs (about a minute).
`pillarbox COMMAND --help` describes a command.

END
awk '
    /^## / { name = substr($0, 4); next }
    name != "" && NF { if (name !~ / /) { sub(/\. [A-Z].*/, "."); printf "  %-14s %s\n", name, $0 }; name = "" }
' "$page"
