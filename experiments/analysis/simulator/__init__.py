"""Networks of up to millions of servers, flow by flow: paths, loads, rates and failures.

The rules of routing are those of the live servers. Their compiled forms stand in `paths`, a file
for each network, and tests hold them equal to hosts/ hop by hop.
"""
