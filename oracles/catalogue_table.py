"""The page docs/architectures.md, made from the catalogue."""

from collections.abc import Iterator, Sequence

from oracles.catalogue import CATALOGUE, LISTED, Architecture
from oracles.catalogue_decoders import DECODERS, ENCODERS
from oracles.catalogue_moe import MIXTURES
from oracles.catalogue_speculative import SPECULATORS
from oracles.catalogue_vision import VISION

_HEAD = """\
# Architectures

Every architecture that MAX 26.7 registers. The page is made from the data in
`oracles/catalogue_*.py`; tests hold that data against MAX's registry, and this page against it.

On MAX: `runs` and `runs with patches` were seen with debug_model on a tiny random checkpoint, on a
CPU, in float32; the patches are in `test_common/max_cpu_patches.py`. `not run` says just that: it
may work. Of the examples none was run on MAX.

`+V3` marks a ModuleV3 variant, which `--prefer-module-v3` chooses, and what was seen of it.
"""
_SECTIONS: Sequence[tuple[str, Sequence[Architecture]]] = (
    ("Decoders", DECODERS),
    ("Decoders with mixtures of experts", MIXTURES),
    ("Encoders, for embeddings", ENCODERS),
    ("Readers of pictures and text", VISION),
)


def page() -> str:
    """Return the text of docs/architectures.md."""
    lines = [_HEAD]
    for title, entries in _SECTIONS:
        served = [entry for entry in entries if entry.no_oracle is None]
        lines += [f"## {title}\n", *_served_rows(served), ""]
    lines += ["## What debug_model does not run\n", *_unserved_rows()]
    return "\n".join(lines) + "\n"


def _served_rows(entries: Sequence[Architecture]) -> Iterator[str]:
    yield "| architecture | example | CPU | GPU | on MAX |"
    yield "|---|---|---|---|---|"
    for entry in entries:
        devices = entry.device_encoding_map
        cells = (
            _name(entry),
            entry.example or "",
            ", ".join(devices.get("cpu", ())) or "none",
            ", ".join(devices["gpu"]),
            _status(entry),
        )
        yield f"| {' | '.join(cells)} |"


def _unserved_rows() -> Iterator[str]:
    yield "| architecture | example | why |"
    yield "|---|---|---|"
    unserved = [entry for entry in LISTED if entry.no_oracle is not None]
    names = {speculator.name for speculator in SPECULATORS}
    derived = [entry for entry in CATALOGUE.values() if entry.name in names]
    for entry in (*unserved, *derived):
        why = str(entry.no_oracle).partition(":")[0]
        target = f", of {entry.speculates_on}" if entry.speculates_on else ""
        yield f"| {_name(entry)} | {entry.example or ''} | {why}{target} |"


def _name(entry: Architecture) -> str:
    return f"{entry.name} +V3" if entry.module_v3 else entry.name


def _status(entry: Architecture) -> str:
    said = [str(entry.status)]
    if entry.module_v3 and entry.module_v3_status is not entry.status:
        said.append(f"V3 {entry.module_v3_status}")
    if entry.max_cpu_patches and not entry.gpu_only:
        said.append("on a CPU it needs " + ", ".join(f"`{n}`" for n in entry.max_cpu_patches))
    if entry.reads_pictures:
        said.append(entry.oracle_class or "no oracle prepares its pictures")
    return "; ".join(said)
