"""Exact resume for the training loops of other libraries. Each module needs its library.

huggingface   transformers' Trainer and its subclasses, such as TRL's
lightning     Lightning's Trainer
trl           TRL's SFTTrainer in a run folder, with recovery from out-of-memory errors and FSDP
sharded       checkpoints of a model that is sharded across processes
text          data for fine-tuning, from files or Hugging Face
tiny          a tiny language model and data to try a script without a download
"""
