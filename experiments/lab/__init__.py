"""A running network on this computer: the kernel, the network, packets seen, and traffic."""
