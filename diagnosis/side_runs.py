"""Runs the sides that are engines, each into a dump of its own, and opens the dumps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from comparison.schema.errors import BadInputError, MissingPathError
from comparison.store.dump import Dump, open_dump
from diagnosis.output_folders import remove_dump
from diagnosis.side_errors import side_errors
from diagnosis.sides import DumpSide, EngineSide, SideSpec
from oracles.oracle import PipelineOracle
from oracles.oracle_check import checked_oracle
from test_common.batch_file import Prompt
from test_common.debug_options import ALL_LAYERS, DebugOptions
from test_common.early_refusals import refuse_early
from test_common.remote_code import with_trust

if TYPE_CHECKING:
    from test_common.dump_writer import DumpWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How sides that are engines are run.

    Attributes:
        pipeline: the common pipeline, by the name the user gave; None where there is none.
        prompts: one text, or its token ids, a row; empty for the oracle's own.
        num_steps: steps to run, the prefill included.
        num_hidden_layers: layers to keep, or `all`.
        encoding: weights' encoding, None for the oracle's first.
        device: as in `DebugOptions`.
        hf_config_overrides: fields of the configuration, on every side.
        prefer_module_v3: whether to choose MAX's ModuleV3 variant.
        seed: set before each run.
        filter: globs of what engines capture; empty for all.
        ops: globs of the modules whose operations they capture too.
        watch_config: whether to note which fields of the configuration they read.
        overwrite: whether earlier dumps in their folders may be replaced.
        verify_capture: whether each is run again without hooks, to see that these change nothing.
        trust_remote_code: whether Python code of the models' repositories may run.
        stream: whether weights stay in their safetensors files, where Torch runs.
        recorded_in: the dump that some of these are taken from; None where all are the user's own.
    """

    pipeline: str | None = None
    prompts: tuple[Prompt, ...] = ()
    num_steps: int = 3
    num_hidden_layers: int | str = ALL_LAYERS
    encoding: str | None = None
    device: str = "default"
    hf_config_overrides: Mapping[str, Any] = field(default_factory=dict)
    prefer_module_v3: bool = False
    seed: int = 0
    filter: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    watch_config: bool = False
    overwrite: bool = False
    verify_capture: bool = False
    trust_remote_code: bool = False
    stream: bool = False
    recorded_in: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideDump:
    """One side, run or read.

    Attributes:
        spec: as the user named it.
        dump: its tensors.
        oracle: what was run; None for a dump that was there already.
        options: how; None for a dump that was there already.
        cached_at: when it was made, in seconds since the epoch, where the run is one of the cache.
    """

    spec: SideSpec
    dump: Dump
    oracle: PipelineOracle | None = None
    options: DebugOptions | None = None
    cached_at: float | None = None


EngineOracle = tuple[PipelineOracle, str]  # with the name that the user gave


def run_side(spec: SideSpec, folder: Path, options: RunOptions) -> SideDump:
    """Run a side into `folder`, or open the dump that it is.

    Args:
        spec: the side.
        folder: where the dump of a run goes.
        options: how to run.

    Raises:
        BadInputError: there is no such pipeline, oracle or dump.
        EngineError: the engine cannot run it.
    """
    match spec:
        case DumpSide(path=path):
            return SideDump(spec=spec, dump=open_dump(path))
        case EngineSide():
            return run_engine_side(spec, folder, options)
        case _:
            assert_never(spec)


def measure_side(
    spec: EngineSide,
    folder: Path,
    options: RunOptions,
    *,
    max_bytes: int,
    known: EngineOracle | None = None,
) -> tuple[SideDump | None, dict[str, int]]:
    """Run a side on Torch, whatever its engine, and tell how large its full dump is.

    Args:
        spec: the side.
        folder: where the dump goes, if it is small enough.
        options: how to run.
        max_bytes: greatest size of the dump; with 0 it is only measured.
        known: what `oracle_of` gave, None for asking it.

    Returns:
        The side where its dump fits, else None; and the bytes of each tensor.

    Raises:
        BadInputError: there is no such pipeline or oracle.
        EngineError: Torch cannot run it.
    """
    from test_common.debug_run import run_debug_model
    from test_common.limited_writer import LimitedDumpWriter

    spec = replace(spec, engine="torch")
    oracle, name = known or oracle_of(spec, options)
    asked = debug_options(spec, name, folder, options)
    writer = LimitedDumpWriter(folder, max_bytes=max_bytes, overwrite=options.overwrite)
    with side_errors(called(spec, folder, options)):
        _require_recorded_fit(oracle, asked, options)
        run_debug_model(oracle, asked, writer=writer)
    if writer.overflowed:
        remove_dump(folder)  # holds no tensors
        return None, dict(writer.sizes)
    side = SideDump(spec=spec, dump=open_dump(folder), oracle=oracle, options=asked)
    return side, dict(writer.sizes)


def called(spec: EngineSide, folder: Path, options: RunOptions) -> str:
    """Call a side by its role, which its folder is named for, and as the user did.

    Args:
        spec: the side.
        folder: of its dump.
        options: how it is run; what is taken from a dump for it is told.
    """
    role, _, _ = folder.name.partition("-")
    number = role.removeprefix("candidate")
    how = "" if options.recorded_in is None else f", run as {options.recorded_in} was"
    called = f"candidate {number}" if number.isdecimal() else f"the {role}"
    return f"{called} ({spec}{how})"


def sizes_of_dump(dump: Dump) -> dict[str, int]:
    """Return the bytes of each tensor of a dump, by the sizes of its files."""
    shares = Counter(entry.path for entry in dump.entries)
    sizes: Counter[str] = Counter()
    for entry in dump.entries:
        if entry not in dump.problems:
            sizes[entry.name] += entry.path.stat().st_size // shares[entry.path]
    return dict(sizes)


def run_engine_side(
    spec: EngineSide, folder: Path, options: RunOptions, *, writer: DumpWriter | None = None
) -> SideDump:
    """Run an engine into `folder`.

    Args:
        spec: the side.
        folder: where the dump goes.
        options: how to run.
        writer: takes the tensors, instead of one made of the options.

    Raises:
        BadInputError: there is no such pipeline or oracle.
        EngineError: the engine cannot run it.
    """
    from test_common.debug_run import run_debug_model

    with side_errors(called(spec, folder, options)):
        oracle, name = oracle_of(spec, options)
        asked = debug_options(spec, name, folder, options)
        _require_recorded_fit(oracle, asked, options)
        run_debug_model(oracle, asked, writer=writer)
        return SideDump(spec=spec, dump=open_dump(folder), oracle=oracle, options=asked)


def _require_recorded_fit(oracle: PipelineOracle, asked: DebugOptions, options: RunOptions) -> None:
    """Refuse overrides out of a dump, which may be a stranger's, that make a huge model."""
    if options.recorded_in is None:
        return
    from diagnosis.replay.model_size import require_size_of_files

    with _naming_the_dump(options):
        require_size_of_files(oracle, asked)


@contextmanager
def _naming_the_dump(options: RunOptions) -> Iterator[None]:
    """Name the dump in errors of overrides that were taken from it."""
    try:
        yield
    except BadInputError as error:
        if options.recorded_in is None:
            raise
        raise BadInputError(f"as {options.recorded_in} was run: {error}") from None


def debug_options(spec: EngineSide, name: str, folder: Path, options: RunOptions) -> DebugOptions:
    """Return how an engine is run.

    Args:
        spec: the side.
        name: of its oracle.
        folder: where the dump goes.
        options: how sides are run.
    """
    return DebugOptions(
        pipeline=name,
        framework=spec.engine,
        output=folder,
        overwrite=options.overwrite,
        device=options.device,
        num_hidden_layers=options.num_hidden_layers,
        num_steps=options.num_steps,
        prompts=options.prompts,
        encoding=options.encoding,
        hf_config_overrides=options.hf_config_overrides,
        prefer_module_v3=options.prefer_module_v3 and spec.engine == "max",
        seed=options.seed,
        filter=options.filter,
        watch_config=options.watch_config,
        ops=options.ops,
        weights=True,
        check_observer=True,
        verify_capture=options.verify_capture,
        trust_remote_code=options.trust_remote_code,
        stream=options.stream and spec.engine == "torch",
    )


def oracle_of(spec: EngineSide, options: RunOptions) -> EngineOracle:
    """Return a side's oracle and its name.

    Raises:
        BadInputError: neither the side nor the user names a pipeline.
    """
    from oracles.oracle_file import load_oracle_file
    from oracles.registry import find_oracle

    name = _name_of(spec, options)
    oracle = checked_oracle(load_oracle_file(name) if _is_file(name) else find_oracle(name))
    return with_trust(oracle, trusted=options.trust_remote_code), name


def _name_of(spec: EngineSide, options: RunOptions) -> str:
    name = spec.oracle or options.pipeline
    if name is None:
        raise BadInputError(f"{spec}: name what to run, --pipeline NAME or {spec}@FILE.py")
    return name


def _is_file(name: str) -> bool:
    return name.endswith(".py") or ".py:" in name


def require_side(spec: SideSpec, options: RunOptions) -> None:
    """Refuse a side that cannot be run by its very name, before any other is run.

    Args:
        spec: the side.
        options: how sides are run.

    Raises:
        BadInputError: neither the side nor the user names a pipeline, there is no such pipeline,
            file or dump, or no environment with vLLM; or the pipeline has no such encoding, or
            fewer layers.
    """
    if not isinstance(spec, EngineSide):
        if not spec.path.exists():
            raise MissingPathError(f"expected a file or folder, found nothing at {spec.path}")
        return
    if spec.engine == "vllm":
        from test_common.vllm_environment import vllm_command

        vllm_command()
    from oracles.oracle_file import check_oracle_file
    from oracles.registry import find_oracle

    name = _name_of(spec, options)
    if _is_file(name):
        check_oracle_file(name)
        return
    with _naming_the_dump(options):
        refuse_early(
            find_oracle(name),
            encoding=options.encoding,
            device=options.device,
            num_hidden_layers=options.num_hidden_layers,
            overrides=options.hf_config_overrides,
        )


def with_prompts_of(options: RunOptions, dump: Dump) -> RunOptions:
    """Let further sides run on the very token ids that a dump was made of."""
    if dump.manifest is None or not dump.manifest.rows:
        return options
    rows: Sequence[Prompt] = tuple(row.token_ids for row in dump.manifest.rows)
    return replace(
        options, prompts=tuple(rows), num_steps=dump.manifest.steps, seed=dump.manifest.seed or 0
    )
