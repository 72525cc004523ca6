"""Figures of networks of today whose end points relay: BCCC, Rail-only, UB-Mesh."""
