"""Wang, Li and others, "BML", NeurIPS 2018: gradients summed over BCube."""
