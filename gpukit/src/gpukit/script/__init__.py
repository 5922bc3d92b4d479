"""What a project's own training script consists of, based on exactrun.

start       how a script starts and ends: device, processes, folder, batch size
settings    the settings that every script has, and how they are read
runs        which run a start resumes
device      the device, the number format for it, and how much memory it has
memory      the memory that training needs, computed without a GPU          python -m gpukit.script.memory
errors      one-sentence messages for known errors
trl         TRL's SFTTrainer with Run, and with FSDP
tiny        a tiny language model and its data, to try the script without a download
shapes      images to try the script without a download
torchrun    torchrun, whose exit status says how the training ended
"""
