"""What this machine can do of what labs want, what each lack costs, and how to mend it.

Nothing is read off version numbers where it can be tried: a kernel feature is used once, in a
network namespace of its own that is gone a moment later.
"""
