"""Checks, what they find, how findings are shown, and what must stay private."""
