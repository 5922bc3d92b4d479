"""Verify's probes. Each property is evaluated on first access; the checks only evaluate the results."""
