"""Packet processing on a server: headers, routers, and the forwarder that runs them."""
