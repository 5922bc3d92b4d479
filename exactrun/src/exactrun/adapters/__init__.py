"""Exact resume for the training loops of other libraries. Each module needs its library.

huggingface   transformers' Trainer and its subclasses, such as TRL's
lightning     Lightning's Trainer
epochs        the batches of both, which follow from the epoch
"""
