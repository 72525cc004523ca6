"""The Python API: what `import pillarbox` offers, without the command line."""
