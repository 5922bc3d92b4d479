"""Checks and their findings, how findings are printed, and hiding secrets and names."""
