"""Live servers: routers behind real ports, in network namespaces of this machine."""
