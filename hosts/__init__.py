"""What a server does with a packet: headers, routers and the forwarder that carries them."""
