"""Building blocks for training scripts: exact resume, safe stops, recovery from out-of-memory errors, fast loading.

    run         exact resume for any training loop (passes, streams, state, checks)
    session     a run of a project's own script, from its settings
    settings    the settings that every script has, and how they are read
    task        model, optimizer, data, and loss as one value
    device      the device, how to use it, and how much memory it has
    ranks       one process or several
    batch       a training step that recovers from running out of memory (parts)
    finder      the largest batch that fits in a GPU's memory                   python -m gpukit.train.finder
    memory      the memory that training needs, computed without a GPU          python -m gpukit.train.memory
    data        batches that depend only on the seed and the step, and their loader (seeds, workers)
    tuner       the batches of a training loop, with the number of loader processes chosen during the first steps
    checkpoint  checkpoints that are verified when they are loaded (hashed)
    saver       saving while training continues
    stop        signals that stop a run at the end of a step
    monitor     utilization, memory, power, and time spent waiting for data
    profile     a few steps recorded by torch.profiler
    export      a run's model as ONNX or pt2, compared with the original
    speed       precision, compilation, layout, attention, and batch size, timed                      gpukit speed
    track       metrics.jsonl and experiment trackers
    folder      the folder of a run, its settings and versions
    progress    progress output
    curve       a plot of the losses
    errors      one-sentence messages for known errors

The package adapters has exact resume for the training loops of Hugging Face, TRL, and Lightning. In parentheses:
modules that the module uses internally. docs/api.md in the template lists the public API.
"""
