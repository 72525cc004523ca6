"""Programs that send flows over a lab, and their results; `models.workloads` plans the flows."""
