"""Building blocks for training scripts: exact resume, safe stops, recovery from out-of-memory errors, fast loading.

    task        model, optimizer, data, and loss as one value
    device      the device, how to use it, and how much memory it has
    ranks       one process or several
    batch       a training step that recovers from running out of memory (parts)
    finder      the largest batch that fits in memory (search, trial)          python -m gpukit.train.finder
    data        batches that depend only on the seed and the step, and their loader (seeds, workers)
    tuner       the fastest number of loader processes (costs, timing, sweep)  python -m gpukit.train.sweep
    feed        the batches of a training loop, with a loader that is tuned during the first steps
    checkpoint  checkpoints that are verified when they are loaded (hashed)
    saver       saving while training continues
    adapters    exact resume inside of the training loops of other libraries (sharded: models across processes)
    stop        signals that stop a run at the end of a step
    track       metrics.jsonl and experiment trackers
    run         the folder of a run, its settings and versions
    progress    progress output
    curve       a plot of the losses
    errors      one-sentence messages for known errors

In parentheses: modules that the module uses internally. docs/api.md in the template lists the public API.
"""
