"""What verify looks at. Each property looks when it is first read; the checks only judge."""
