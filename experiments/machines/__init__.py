"""One live network over several machines: who has which node, and one lab of all their parts."""
