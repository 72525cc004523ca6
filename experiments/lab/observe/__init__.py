"""Frames on the cables of a lab: captured, dissected by Wireshark, and assembled into paths."""
