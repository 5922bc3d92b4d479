"""`./launch update`: Copier's update, looked at on a copy of the project first, applied, and reverted."""
