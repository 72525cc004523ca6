"""Networks of up to millions of servers, flow by flow: paths, loads, rates and failures.

The rules of routing are those of the live servers: `compiled` compiles the functions of hosts/ as
they stand there (docs/adr/0005-rules.md), and what is here walks with them, over arrays of flows.
"""
