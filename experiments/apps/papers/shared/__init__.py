"""Code shared by several figures."""
