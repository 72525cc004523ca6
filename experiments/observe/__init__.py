"""Frames on the cables of a lab: captured, dissected by Wireshark, followed hop by hop."""
