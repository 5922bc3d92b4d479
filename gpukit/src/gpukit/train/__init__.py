"""What a training script imports: a run that resumes exactly, stops safely, and keeps its GPU full and fed.

    task        what is trained, as one value: model, optimizer, data, loss
    device      the device and how to use it; how much memory there is
    ranks       one process or many
    batch       a step that survives running out of memory (parts)
    finder      the largest batch that fits (search, trial)          python -m gpukit.train.finder
    data        batches from counters, and their loader (seeds, workers)
    tuner       how many workers load them best (costs, timing, sweep)    python -m gpukit.train.sweep
    feed        the batches of a loop, tuned to it while it trains
    checkpoint  a folder for each saved step, checked when it is read (hashed, weights)
    sharded     the same of a model that lies in shards on several processes; a file of `llm` alone
    stop        signals, remembered until the end of a step
    track       where the figures of a run go
    run         the folder of a run, and what it was started with
    progress    how far it is, while it trains
    curve       the losses of a run as a picture
    errors      what is known to go wrong, in one sentence

In brackets: what the file is built on. Each file can be read alone, and so can it be left: `src/` is yours, and calls
what it likes. What the files before the brackets offer without a leading underscore is an API: `copier update` may add
to it, and takes nothing away and changes no meaning within a major version of the template, since it does not touch
your `src/`.
"""
