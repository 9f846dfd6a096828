"""Every architecture that MAX registers, and how to run it; data in the files `catalogue_*`."""

from collections.abc import Iterator, Sequence

from oracles.catalogue_decoders import DECODERS, ENCODERS
from oracles.catalogue_entry import SPECULATES, V3_SUFFIX, Architecture, Status
from oracles.catalogue_media import MEDIA
from oracles.catalogue_moe import MIXTURES
from oracles.catalogue_speculative import DRAFTS, PAIRS, SPECULATORS
from oracles.catalogue_vision import VISION

__all__ = [
    "CATALOGUE",
    "LISTED",
    "Architecture",
    "Status",
    "architecture_names",
    "find_architecture",
    "run_as",
    "why_no_oracle",
]

# As written down: one entry a family, in the order that tables show.
LISTED: tuple[Architecture, ...] = (
    *DECODERS,
    *MIXTURES,
    *ENCODERS,
    *VISION,
    *MEDIA,
    *DRAFTS,
    *PAIRS,
)

# What other classes of transformers than the registered ones are run as.
_ALIASES = {"BertForMaskedLM": "BertModel", "MPNetModel": "MPNetForMaskedLM"}


def _all() -> Iterator[Architecture]:
    """Yield the listed entries, their ModuleV3 variants and the speculators derived from them."""
    by_name = {entry.name: entry for entry in LISTED}
    for entry in LISTED:
        yield entry
        if entry.module_v3:
            yield entry.variant_v3()
    for speculator in SPECULATORS:
        yield speculator.derived(by_name[speculator.target])


# A name may stand for two tasks, so both are the key.
CATALOGUE: dict[tuple[str, str], Architecture] = {
    (entry.name, entry.task): entry for entry in _all()
}


def _by_lowered_name() -> dict[str, Architecture]:
    found: dict[str, Architecture] = {}
    for (name, _), entry in CATALOGUE.items():
        found.setdefault(name.lower(), entry)  # of two tasks text generation is listed first
    # config.json has no suffix, and some are registered with it only.
    bare = {name.removesuffix(V3_SUFFIX.lower()): entry for name, entry in found.items()}
    aliases = {name.lower(): found[target.lower()] for name, target in _ALIASES.items()}
    return {**aliases, **bare, **found}


_BY_LOWERED_NAME = _by_lowered_name()


def architecture_names() -> list[str]:
    """Return every name that `find_architecture` knows."""
    return sorted({name for name, _ in CATALOGUE} | set(_ALIASES))


def find_architecture(name: str) -> Architecture | None:
    """Return the entry of an architecture, that of text generation where it has several tasks.

    Args:
        name: as a model's config.json or MAX names it, in any case.
    """
    return _BY_LOWERED_NAME.get(name.lower())


def run_as(names: Sequence[str]) -> Architecture:
    """Return the entry of the first name that has one, else that of a plain decoder.

    Args:
        names: the architectures of a model's config.json.
    """
    found = (find_architecture(name) for name in names)
    plain = Architecture(
        name=next(iter(names), ""), example=None, encodings=("bfloat16", "float32")
    )
    return next((entry for entry in found if entry is not None), plain)


def why_no_oracle(model: str) -> str | None:
    """Return one sentence on why debug_model cannot run a model, None where it can or may.

    Args:
        model: a Hub id among the examples, or the name of an architecture, in any case.
    """
    named = find_architecture(model)
    if named is not None:
        if named.no_oracle is None:
            return f"{model} is an architecture, no model: give one, such as {named.example}"
        return f"{model}: {named.no_oracle}"
    entries = [entry for entry in LISTED if (entry.example or "").lower() == model.lower()]
    # The example of a speculative pair is its target, a model of its own.
    if not entries or any(entry.no_oracle in (None, SPECULATES) for entry in entries):
        return None
    return f"{model} is run as {entries[0].name}: {entries[0].no_oracle}"
