"""A lab over several machines: node placement, a part on each machine, the lab that leads them."""
