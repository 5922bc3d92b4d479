"""What follows a run while it trains, and shows it.

observers   those of a project, for `Run(..., observers=observers())`
trackers    experiment trackers
monitor     utilization, memory, power, and time spent waiting for data
"""
