"""The fluid model: what flows over given paths get, and the most that any routing could give."""
