"""The Python API: names exported by `import pillarbox`, without the command line."""
