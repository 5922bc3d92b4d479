"""FSDP on CPUs, where accelerate ignores the option: to be imported before a script of the use case llm."""

from __future__ import annotations

from accelerate import DistributedType, FullyShardedDataParallelPlugin
from transformers import Trainer

CREATE = Trainer.create_accelerator_and_postprocess


def create(trainer: Trainer) -> None:
    CREATE(trainer)
    if trainer.args.fsdp and not trainer.is_fsdp_enabled:
        state = trainer.accelerator.state
        state.distributed_type = DistributedType.FSDP
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**trainer.args.fsdp_plugin_args)
        trainer.is_fsdp_enabled = True


Trainer.create_accelerator_and_postprocess = create
