"""Live servers: routers with real ports, in network namespaces of this machine."""
