"""What a user can ask of a debug run."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError
from test_common.batch_file import Prompt
from test_common.capture_mode import CaptureMode
from test_common.error_text import shown
from test_common.print_style import PrintStyle
from test_common.source_name import sources_problem

FRAMEWORKS = ("max", "torch", "vllm")
ALL_LAYERS = "all"
_DEVICE = re.compile(r"cpu|gpu(:\d+(,\d+)*)?")
_MOST_DIGITS = 17  # what tells two float64 apart


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugOptions:
    """The options of one run.

    Attributes:
        pipeline: the name the user gave, for the manifest.
        framework: one of `FRAMEWORKS`.
        device: `default`, `cpu`, `gpu` or `gpu:<index>`.
        output: dump folder, or None for abbreviated tensors on the console.
        overwrite: whether an earlier dump in `output` may be replaced.
        resume: whether an earlier dump of the same run in `output` is kept and gone on with.
        num_hidden_layers: layers to keep, or `all`.
        num_steps: steps to run, the prefill included.
        prompts: one text, or its token ids, a row; empty for the oracle's own.
        encoding: weights' encoding, or None for the oracle's first on that device.
        max_batch_size: rows in a batch, or None for the oracle's default.
        hf_config_overrides: fields of the Hugging Face configuration, nested as it is.
        prefer_module_v3: whether to choose MAX's ModuleV3 variant.
        tensor_parallel_size: vLLM processes to split the tensors over; None for one a device.
        seed: set before the model is built.
        filter: globs of the modules or tensors to capture; empty for all.
        steps: the steps to capture, None for all.
        style: how tensors are printed or written; `NATIVE` prints compact without `output`.
        precision: digits behind the point in style `full`.
        images: files or web addresses of pictures, which all rows get; empty for those made by
            code, where the model takes any.
        weights: whether to write down the weights that the model runs with.
        ops: globs of the modules whose operations are captured too, each by itself.
        watch_config: whether to note which fields of the configuration the engine's code reads.
        check_observer: whether to run the first step again without hooks, on Torch, and tell
            whether capture changes what the model gives.
        verify_capture: whether to run all of it again without hooks, on any engine, and tell so of
            every step.
        max_bytes: greatest size of the dump's tensor files in bytes, None for no limit.
        max_memory: greatest memory in bytes that the process with the model may hold, None for no
            limit.
        trust_remote_code: whether Python code of the model's repository may run. What the oracle
            itself says of it does not count.
        stream: whether weights stay in their safetensors files on Torch, and are read as they are
            needed.
        mode: how much of each tensor is kept; less than all takes an output folder.
    """

    pipeline: str
    framework: str = "max"
    device: str = "default"
    output: Path | None = None
    overwrite: bool = False
    resume: bool = False
    num_hidden_layers: int | str = 1
    num_steps: int = 1
    prompts: tuple[Prompt, ...] = ()
    encoding: str | None = None
    max_batch_size: int | None = None
    hf_config_overrides: Mapping[str, Any] = field(default_factory=dict)
    prefer_module_v3: bool = False
    tensor_parallel_size: int | None = None
    seed: int = 0
    filter: tuple[str, ...] = ()
    steps: frozenset[int] | None = None
    style: PrintStyle = PrintStyle.NATIVE
    precision: int = 6
    images: tuple[str | Path, ...] = ()
    weights: bool = False
    ops: tuple[str, ...] = ()
    watch_config: bool = False
    check_observer: bool = False
    verify_capture: bool = False
    trust_remote_code: bool = False
    max_bytes: int | None = None
    max_memory: int | None = None
    stream: bool = False
    mode: CaptureMode = CaptureMode.FULL

    def __post_init__(self) -> None:
        """Collect all that is wrong with the options.

        Raises:
            BadInputError: some are out of range or do not go together.
        """
        problems = [problem for problem in self._kind_problems() if problem is not None]
        if problems:  # nothing can be said of the values
            raise BadInputError("; ".join(problems))
        if self.framework not in FRAMEWORKS:
            problems.append(f"framework must be one of {FRAMEWORKS}, got {self.framework!r}")
        if self.device != "default":
            problems += filter(None, [device_problem(self.device)])
        if self.num_hidden_layers != ALL_LAYERS:
            problems += _too_small("num_hidden_layers", self.num_hidden_layers, or_all=True)
        problems += _too_small("num_steps", self.num_steps)
        problems += _too_small("max_batch_size", self.max_batch_size)
        if self.max_batch_size is not None and len(self.prompts) > self.max_batch_size:
            problems.append(
                f"{len(self.prompts)} prompts do not fit max_batch_size {self.max_batch_size}"
            )
        if self.prefer_module_v3 and self.framework != "max":
            problems.append(f"prefer_module_v3 is for max, not for {self.framework}")
        if self.stream and self.framework != "torch":
            problems.append(f"stream is for torch, not for {self.framework}")
        problems += self._parallel_problems()
        problems += self._style_problems()
        problems += self._mode_problems()
        problems += self._resume_problems()
        if self.overwrite and self.output is None:
            problems.append("overwrite replaces a dump: name its output folder")
        problems += _too_small("max_bytes", self.max_bytes)
        problems += _too_small("max_memory", self.max_memory)
        if self.weights and self.output is None:
            problems.append("weights are written into a file: name an output folder")
        if problems:
            raise BadInputError("; ".join(problems))

    @property
    def kept_layers(self) -> int | None:
        """Return the number of layers that a run keeps, None for all."""
        if self.num_hidden_layers == ALL_LAYERS:
            return None
        return int(self.hf_config_overrides.get("num_hidden_layers", self.num_hidden_layers))

    def _kind_problems(self) -> Iterator[str | None]:
        """Say which values are of another kind than a run can take."""
        yield _text_problem("pipeline", self.pipeline)
        yield _text_problem("framework", self.framework)
        yield _text_problem("device", self.device)
        if self.num_hidden_layers != ALL_LAYERS and not _is_whole(self.num_hidden_layers):
            layers = shown(self.num_hidden_layers)
            yield f"num_hidden_layers must be at least 1 or 'all', got {layers}"
        yield _whole_problem("num_steps", self.num_steps)
        yield _whole_problem("seed", self.seed)
        yield _whole_problem("precision", self.precision)
        if self.max_batch_size is not None:
            yield _whole_problem("max_batch_size", self.max_batch_size)
        if self.max_bytes is not None:
            yield _whole_problem("max_bytes", self.max_bytes)
        if self.max_memory is not None:
            yield _whole_problem("max_memory", self.max_memory)
        if self.tensor_parallel_size is not None:
            yield _whole_problem("tensor_parallel_size", self.tensor_parallel_size)
        if isinstance(self.prompts, str | bytes):
            yield f"prompts must be a list of prompts, found {shown(self.prompts)}"
        yield None if self.images is None else sources_problem(self.images)

    def _parallel_problems(self) -> list[str]:
        size, devices = self.tensor_parallel_size, self.device.count(",") + 1
        if size is None:
            return []
        problems = []
        if size < 1:
            problems.append(f"tensor_parallel_size must be at least 1, got {size}")
        if self.framework != "vllm":
            problems.append(
                f"tensor_parallel_size is for vllm, not for {self.framework}: name several "
                "devices (gpu:0,1) instead"
            )
        if self.device.startswith("gpu:") and size != devices:
            problems.append(
                f"tensor_parallel_size {size} does not fit device {self.device}, which names "
                f"{devices}"
            )
        return problems

    def _mode_problems(self) -> list[str]:
        if self.mode is CaptureMode.FULL:
            return []
        problems = []
        if self.output is None:
            problems.append(f"mode {self.mode} writes files: name an output folder")
        if self.style is not PrintStyle.NATIVE:
            problems.append(f"mode {self.mode} has files of its own: leave the style out")
        return problems

    def _resume_problems(self) -> list[str]:
        if not self.resume:
            return []
        problems = []
        if self.output is None:
            problems.append("resume goes on with a dump: name its output folder")
        if self.overwrite:
            problems.append("give resume or overwrite, not both")
        if self.framework == "vllm":
            problems.append(
                "resume is for torch and max: processes of vllm write by themselves; overwrite "
                "the dump instead"
            )
        if self.framework == "max" and self.mode is not CaptureMode.FULL:
            problems.append(
                f"resume in mode {self.mode} is for torch: of a step on max its tensors are gone "
                "once they are sketched; overwrite the dump instead"
            )
        return problems

    def _style_problems(self) -> list[str]:
        problems = []
        if self.style.on_console and self.output is not None:
            problems.append(f"style {self.style} prints on the console: leave the output out")
        if not self.style.on_console and self.style is not PrintStyle.NATIVE and not self.output:
            problems.append(f"style {self.style} writes files: name an output folder")
        if self.style is PrintStyle.SAFETENSORS and self.framework == "max":
            problems.append(
                "format safetensors is for torch and vllm: MAX writes its files by itself"
            )
        if not 0 <= self.precision <= _MOST_DIGITS:
            problems.append(f"precision must be 0 to {_MOST_DIGITS}, got {self.precision}")
        return problems


def device_problem(device: str) -> str | None:
    """Say whether the name of a device is of another form.

    Args:
        device: which is not `default`.
    """
    if _DEVICE.fullmatch(device):
        return None
    return f"device must be cpu, gpu, gpu:<index>, gpu:<index>,<index> or default, got {device!r}"


def _is_whole(value: object) -> bool:
    try:
        operator.index(value)  # type: ignore[arg-type]  # tried out
    except TypeError:
        return False
    return not isinstance(value, bool)


def _whole_problem(name: str, value: object) -> str | None:
    return None if _is_whole(value) else f"{name} must be a whole number, got {shown(value)}"


def _text_problem(name: str, value: object) -> str | None:
    return None if isinstance(value, str) else f"{name} must be a text, got {shown(value)}"


def _too_small(name: str, value: Any, *, or_all: bool = False) -> list[str]:
    if value is None or value >= 1:
        return []
    return [f"{name} must be at least 1{f' or {ALL_LAYERS!r}' if or_all else ''}, got {value}"]
