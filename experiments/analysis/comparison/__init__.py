"""What the papers' tables compare: sizes, paths, cuts, money, power and wires."""
