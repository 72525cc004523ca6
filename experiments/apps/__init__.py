"""Applications of labs, models and runs, which do not know one another.

`page` is the live web page, `papers` reproduces the papers' figures, `teaching` grades lab work,
`cluster` runs a lab over several machines, and `api` is the Python module `pillarbox`.
"""
