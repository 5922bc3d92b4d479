"""What a run reports while it trains.

metrics     metrics.jsonl and experiment trackers
progress    progress output
monitor     utilization, memory, power, and time spent waiting for data
profile     a few steps recorded by torch.profiler
curve       a plot of the losses
environment versions, packages, GPU, and the state of git, recorded at each start
"""
