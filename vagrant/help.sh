#!/bin/sh
# Prints a command's help from docs/commands.md, or the list of commands: until there is a Python
# environment, which prints the same from the commands' own texts.
set -eu
page=$(dirname -- "$(readlink -f -- "$0")")/../docs/commands.md
name=
for word; do
    case $word in -*) ;; *) name="${name:+$name }$word" ;; esac
done
# Commands with options have a section, others a line in a table.
plain='{ gsub(/`/, ""); gsub(/\\[[]/, "["); gsub(/\\\|/, "|"); print }'
if [ -n "$name" ] && grep -qx "### $name" "$page"; then
    awk -v name="### $name" '/^##/ { on = $0 == name; next } on && !/^- JSON:/ '"$plain" "$page"
    exit
fi
if [ -n "$name" ] && grep -q "^| .pillarbox $name[ \`]" "$page"; then
    grep "^| .pillarbox $name[ \`]" "$page" |
        awk '{ split(substr($0, 3), cell, / \| /); $0 = cell[1] "\n\n" cell[2] } '"$plain"
    exit
fi
cat <<'END'
Usage: pillarbox [OPTIONS] COMMAND [ARGS]...

A testbed for server-centric data center networks: DPillar, DCell, BCube and FiConn.
The first command other than --help installs what Pillarbox needs (about a minute).
`pillarbox COMMAND --help` describes a command.

END
awk '
    function show(command, text) {
        sub(/\. [A-Z].*/, ".", text)
        gsub(/`/, "", text)
        if (command !~ / /) printf "  %-14s %s\n", command, text
    }
    /^## / { name = "" }
    /^### / { name = substr($0, 5); next }
    name != "" && /^[A-Z]/ { show(name, $0); name = "" }
    /^\| .pillarbox / {
        split($0, cell, / \| /)
        command = cell[1]
        sub(/^\| .pillarbox /, "", command)
        sub(/`$/, "", command)
        sub(/ [A-Z[].*/, "", command)
        show(command, cell[2])
    }
' "$page"
