"""What a project's own training script consists of, based on exactrun.

session     a run of the script, from its settings
settings    the settings that every script has, and how they are read
runs        which run a start resumes
task        model, optimizer, data, and loss as one value
device      the device, how to use it, and how much memory it has
step        a training step that recovers from running out of memory (reduction)
loader      batches that depend only on the seed and the step, and why loading them fails
tuner       the batches of a training loop, with the number of loader processes chosen during the first steps
finder      the largest batch that fits in a GPU's memory                   python -m gpukit.script.finder
memory      the memory that training needs, computed without a GPU          python -m gpukit.script.memory
speed       precision, compilation, layout, attention, and batch size, timed                     gpukit speed
export      a run's model as ONNX or pt2, compared with the original
errors      one-sentence messages for known errors
trl         TRL's SFTTrainer in a run folder, with recovery from out-of-memory errors and FSDP
text        data for fine-tuning, from files or Hugging Face
tiny        a tiny language model and its data, to try the script without a download
shapes      images to try the script without a download

In parentheses: a module that the module uses internally.
"""
