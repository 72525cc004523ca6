"""Headers and messages as they stand on the wire: bytes to values and back, and nothing else.

`layout` declares a header once; the other modules are what the papers put between Ethernet and
IP, or around IP:

- `frame`: what a server's port takes and gives,
- `dcn`: the header of DCell (and FiConn), `bcube`: the one that carries its path,
- `ipv4`: the packets of applications, their flows, and DPillar's tunnel,
- `messages` and `ficonn`: the bodies of control messages.

Nothing here has a clock, a socket or a memory. Whatever is refused raises `layout.WireError`.
"""
