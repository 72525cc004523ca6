"""Figures of networks of today whose end points relay, and of Multipath TCP over them."""
