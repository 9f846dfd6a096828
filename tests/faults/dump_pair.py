"""Runs the candidate of a pair into a dump folder, and compares its logits with the reference's."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from comparison.schema.manifest import CaptureCertificate, Manifest, Padding, Row
from test_common.dump_writer import DumpWriter
from test_common.observer_effect import observer_effect
from test_common.torch_batch import ModelCall, pad_rows
from test_common.torch_print_hook import TorchPrintHook
from test_common.torch_runner import run_torch, run_torch_encoder
from tests.faults.disguise import Named, disguise_step, flatten
from tests.faults.models import is_encoder, reference
from tests.faults.pair import Pair, Rows

STEPS = 3


@dataclass(slots=True)
class StepSink:
    """Keeps what a hook captures, one list a step."""

    steps: list[list[Named]] = field(default_factory=lambda: [[]])

    def save(self, name: str, tensor: torch.Tensor) -> None:
        self.steps[-1].append((name, tensor.detach().clone()))

    def step(self) -> None:
        self.steps.append([])


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """What a run of a candidate gave."""

    steps: list[list[Named]]
    generated: tuple[tuple[int, ...], ...]
    padding: Padding
    observer_effect: float | None = None


def candidate_of(pair: Pair) -> Any:
    """Copy the reference and change the copy."""
    model = copy.deepcopy(reference(pair.arch))
    with torch.no_grad():
        other = pair.change(model)
    return model if other is None else other


def write_pair(pair: Pair, folder: Path) -> Path:
    """Run the candidate and write its dump as the pair's disguise wants it."""
    model = candidate_of(pair)
    rows = pair.candidate_rows or pair.rows
    captured = _capture(model, rows, pair)
    steps = [
        disguise_step(
            tensors,
            pair.disguise,
            lengths=[len(row) for row in rows] if number == 0 else [1] * len(rows),
            padded=captured.padding,
        )
        for number, tensors in enumerate(captured.steps)
    ]
    writer = DumpWriter(folder)
    manifest = _manifest(pair, model, captured)
    writer.start(manifest)
    for number, tensors in enumerate(steps):
        if number > 0:
            writer.step()
        for name, tensor in tensors:
            writer.save(name, tensor)
    writer.finish(manifest, _certificate(steps))
    return folder


def _certificate(steps: Sequence[Sequence[Named]]) -> CaptureCertificate:
    """Certify what is written: the engine in whose name this is done has nothing else."""
    names = [name for tensors in steps for name, _ in tensors]
    modules = len({name.rsplit("-", 1)[0] for name in names})
    return CaptureCertificate(registered=modules, fired=modules, saved=len(names))


def _manifest(pair: Pair, model: Any, captured: Captured) -> Manifest:
    """Describe the run; a fault that lies in the code does not show in the configuration."""
    configured = model if pair.own_config else reference(pair.arch)
    config = json.loads(configured.config.to_json_string(use_diff=False))
    rows = pair.candidate_rows or pair.rows
    generated = captured.generated or ((),) * len(rows)
    return Manifest(
        engine=pair.disguise.engine,
        versions={"torch": torch.__version__},
        model=f"tiny-random/{pair.arch.partition('@')[0]}",
        pipeline=f"tiny-random/{pair.arch.partition('@')[0]}",
        encoding=str(model.dtype).removeprefix("torch."),
        device="cpu",
        padding=Padding.RAGGED if pair.disguise.ragged else captured.padding,
        rows=tuple(
            Row(prompt=None, token_ids=tuple(ids), generated=tuple(chosen))
            for ids, chosen in zip(rows, generated, strict=True)
        ),
        steps=len(captured.steps),
        observer_effect=captured.observer_effect,
        config=config if pair.disguise.keeps_config or pair.own_config else {},
    )


def _capture(model: Any, rows: Rows, pair: Pair) -> Captured:
    match pair.run:
        case "single":
            return _capture_one_by_one(model, rows, pair.arch)
        case "right":
            return _capture_right_padded(model, rows)
        case _:
            return _capture_batch(model, rows, pair.arch)


def _capture_batch(model: Any, rows: Rows, arch: str) -> Captured:
    sink = StepSink()
    hook = TorchPrintHook(sink=sink)
    hook.name_layers(model)
    if is_encoder(arch):
        embedded = run_torch_encoder(model, rows, pad_token_id=0, hook=hook)
        _remove(hook)
        plain = run_torch_encoder(model, rows, pad_token_id=0).embeddings
        effect = observer_effect([embedded.embeddings], [plain])
        return Captured(
            steps=sink.steps, generated=(), padding=embedded.padding, observer_effect=effect
        )
    run = run_torch(model, rows, num_steps=STEPS, pad_token_id=0, hook=hook)
    _remove(hook)
    alone = run_torch(model, rows, num_steps=1, pad_token_id=0)
    return Captured(
        steps=sink.steps,
        generated=run.generated,
        padding=run.padding,
        observer_effect=observer_effect(run.logits[:1], alone.logits),
    )


def _capture_one_by_one(model: Any, rows: Rows, arch: str) -> Captured:
    """Run each row by itself, and lay the rows one after the other."""
    runs = [_capture_batch(model, (row,), arch) for row in rows]
    steps: list[list[Named]] = []
    for number in range(len(runs[0].steps)):
        lengths = [len(row) if number == 0 else 1 for row in rows]
        flat = [
            {n: flatten(t, lengths=[length], padded=Padding.NONE) for n, t in run.steps[number]}
            for run, length in zip(runs, lengths, strict=True)
        ]
        names = [name for name in flat[0] if _joins(name, [part[name] for part in flat], lengths)]
        steps.append([(name, torch.cat([part[name] for part in flat])) for name in names])
    return replace(
        runs[0], steps=steps, generated=tuple(run.generated[0] for run in runs if run.generated)
    )


def _joins(name: str, parts: Sequence[torch.Tensor], lengths: Sequence[int]) -> bool:
    """Tell tensors of tokens from masks and attention weights, whose rows do not join."""
    return not name.endswith("mask") and all(
        part.dim() > 0 and part.shape[0] == length and part.shape[1:] == parts[0].shape[1:]
        for part, length in zip(parts, lengths, strict=True)
    )


def _capture_right_padded(model: Any, rows: Rows) -> Captured:
    sink = StepSink()
    hook = TorchPrintHook(sink=sink)
    hook.name_layers(model)
    call = ModelCall(model, rows)
    ids, mask = pad_rows(rows, 0, side="right", device=torch.device("cpu"))
    with torch.no_grad():
        logits = call(ids, mask).logits  # [B, S, V]
    _remove(hook)
    chosen = [logits[row, len(tokens) - 1].argmax().item() for row, tokens in enumerate(rows)]
    return Captured(
        steps=sink.steps,
        generated=tuple((int(token),) for token in chosen),
        padding=Padding.RIGHT,
    )


def _remove(hook: TorchPrintHook) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate may leave modules out on purpose
        hook.remove()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitDifference:
    """How far a candidate's logits are from the reference's, and what rounding explains.

    Attributes:
        largest: greatest absolute difference, infinite for NaN.
        shifted: the same, after each token's mean difference was taken off.
        noise: greatest absolute difference of the reference from a more precise run of it.
    """

    largest: float
    shifted: float
    noise: float


def logit_difference(pair: Pair) -> LogitDifference:
    """Feed both sides the same tokens and compare what they give."""
    model, right = candidate_of(pair), reference(pair.arch)
    tokens = _forced_tokens(right, pair)
    wrong = _logits(model, pair.rows, tokens, pair.arch)
    expected = _logits(right, pair.rows, tokens, pair.arch)
    exact = _exact_logits(right, pair, tokens)
    noise = (expected - exact).abs().max().item()
    if model.dtype != right.dtype:
        noise = max(noise, torch.finfo(model.dtype).eps * expected.abs().max().item())
    difference = wrong - expected
    if difference.isnan().any() or difference.isinf().any():
        return LogitDifference(largest=float("inf"), shifted=float("inf"), noise=noise)
    shifted = difference - difference.mean(dim=-1, keepdim=True)
    return LogitDifference(
        largest=difference.abs().max().item(), shifted=shifted.abs().max().item(), noise=noise
    )


def _as_precise(right: Any, dtype: torch.dtype) -> Any:
    """Copy the reference into a wider dtype, with experts whose kernel takes it."""
    model = copy.deepcopy(right).to(dtype)
    if hasattr(model.config, "_experts_implementation"):
        model.set_experts_implementation("eager")
    return model


def _forced_tokens(right: Any, pair: Pair) -> list[torch.Tensor]:
    """Let the reference choose what is fed in the decode steps, [B, 1] each."""
    if is_encoder(pair.arch):
        return []
    chosen = run_torch(right, pair.rows, num_steps=STEPS, pad_token_id=0).generated
    return [torch.tensor(step)[:, None] for step in zip(*chosen, strict=True)][: STEPS - 1]


def _logits(model: Any, rows: Rows, tokens: Sequence[torch.Tensor], arch: str) -> torch.Tensor:
    """Run a model on the rows and on the tokens; the valid places' logits, float64 [T, V]."""
    call = ModelCall(model, rows)
    encoder = is_encoder(arch)
    ids, mask = pad_rows(rows, 0, side="right" if encoder else "left", device=torch.device("cpu"))
    with torch.no_grad():
        if encoder:
            return call(ids, mask, positions=False).last_hidden_state[mask.bool()].double()
        output = call(ids, mask, caching=True)
        found = [output.logits[mask.bool()]]
        for chosen in tokens:
            mask = torch.cat([mask, torch.ones_like(chosen)], dim=1)
            output = call(chosen, mask, cache=output.past_key_values, caching=True)
            found.append(output.logits[:, -1])
    return torch.cat(found).double()


def _exact_logits(right: Any, pair: Pair, tokens: Sequence[torch.Tensor]) -> torch.Tensor:
    """Do the same in a wider dtype, row by row: in float64 transformers' masks of padding overflow.

    Ordered as `_logits` orders them.
    """
    wide = _as_precise(right, torch.float64 if right.dtype == torch.float32 else torch.float32)
    parts = [
        _logits(wide, (row,), [step[number : number + 1] for step in tokens], pair.arch)
        for number, row in enumerate(pair.rows)
    ]
    prompts = [part[: len(row)] for part, row in zip(parts, pair.rows, strict=True)]
    decoded = [
        part[len(row) + number][None]
        for number in range(len(tokens))
        for part, row in zip(parts, pair.rows, strict=True)
    ]
    return torch.cat([*prompts, *decoded])
