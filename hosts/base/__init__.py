"""What the routing of all networks shares."""
