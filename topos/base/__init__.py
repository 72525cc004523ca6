"""Code shared by all networks: the Topology contract, specs, addresses, arrays, Mininet."""
