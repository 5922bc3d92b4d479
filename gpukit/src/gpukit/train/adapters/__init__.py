"""Exact resume inside of the training loops of other libraries."""
