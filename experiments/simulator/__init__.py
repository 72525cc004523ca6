"""The simulator: flows over networks of any size, without packets."""
