"""Flow-level simulator for networks of up to millions of servers: paths, loads, rates and failures.

The routing rules are those of the live servers: `compiled` compiles the functions of hosts/
unchanged (docs/adr/0005-rules.md), and the modules here apply them to arrays of flows.
"""
