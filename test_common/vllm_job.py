"""What the vLLM worker process is given: one folder of files, to which it adds its result."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

JOB_FILE = "job.json"
DRAFT_FILE = "draft.json"  # the manifest as far as the parent knows it
RESULT_FILE = "result.json"  # the manifest of the run
LOGITS_FILE = "logits.npz"  # one array a step
ERROR_FILE = "error.txt"  # what a failed worker has to say, in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmJob:
    """One run of vLLM.

    Attributes:
        model_path: local folder or Hub id.
        tokenizer_path: where the tokenizer is, None for `model_path`.
        trust_remote_code: whether code of the model's repository may run.
        rows: token ids, one list a row.
        num_steps: steps to run, the prefill included.
        encoding: `float32`, `bfloat16`, ...
        device: `cpu`, `gpu` or `gpu:<index>,...`.
        ranks: number of processes that the model's tensors are split over.
        embeds: whether the model gives embeddings instead of tokens.
        seed: the seed of the engine.
        num_hidden_layers: layers kept, or None for all.
        overrides: fields of the Hugging Face configuration.
        capture: False runs without any hook.
        output: dump folder, or None for the console.
        overwrite: whether an earlier dump in it may be replaced.
        filter: globs of what to capture, None for all.
        steps: the steps to capture, None for all.
        style: how tensors are printed or written, a value of `PrintStyle`.
        precision: digits behind the point in style `full`.
        ops: globs of the modules whose operations are captured too.
        weights: whether to write down the weights that the model runs with.
        watch_config: whether to note which fields of the configuration are read.
        max_bytes: greatest size of the tensor files of all ranks, None for no limit.
        max_memory: greatest memory of all ranks' processes, None for no limit.
        parent: the process that waits for the result; when it ends, the worker ends too.
        mode: how much of each tensor is kept, a value of `CaptureMode`.
    """

    model_path: str
    tokenizer_path: str | None = None
    trust_remote_code: bool = False
    rows: list[list[int]]
    num_steps: int
    encoding: str
    device: str = "cpu"
    ranks: int = 1
    embeds: bool = False
    seed: int = 0
    num_hidden_layers: int | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    capture: bool = True
    output: str | None = None
    overwrite: bool = False
    filter: list[str] | None = None
    steps: list[int] | None = None
    style: str = "native"
    precision: int = 6
    ops: list[str] = field(default_factory=list)
    weights: bool = False
    watch_config: bool = False
    max_bytes: int | None = None
    max_memory: int | None = None
    parent: int | None = None
    mode: str = "full"

    def write(self, folder: Path) -> None:
        """Write the job into its folder."""
        text = json.dumps(dataclasses.asdict(self))
        (folder / JOB_FILE).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a job that `write` wrote."""
        return cls(**json.loads((folder / JOB_FILE).read_text(encoding="utf-8")))
