"""Every registered oracle by its key, and the search for one by name."""

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comparison.schema.errors import BadInputError, CorruptFileError, UnknownPipelineError
from oracles import tiny_random
from oracles.catalogue import Architecture, architecture_names, run_as, why_no_oracle
from oracles.generic_oracle import GenericOracle
from oracles.hub_models import hub_model_oracles
from oracles.hub_multimodal import hub_multimodal_oracles
from oracles.multimodal import multimodal_class
from oracles.oracle import PipelineOracle
from oracles.packaged import PREFIX as PACKAGED_PREFIX
from oracles.packaged import packaged_oracles
from oracles.tiny_gguf import tiny_gguf_oracles
from test_common.config_file import read_config_object
from test_common.error_text import shown

PIPELINE_ORACLES: dict[str, PipelineOracle] = {
    **hub_model_oracles(),
    **hub_multimodal_oracles(),
    **tiny_random.tiny_random_oracles(),
    **tiny_gguf_oracles(),
    **packaged_oracles(),
}

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]*/[\w.\-]+")
_ANY_DEVICE = {"cpu": ("float32", "bfloat16"), "gpu": ("bfloat16", "float32")}
_LONGEST_HUB_ID = 96  # what the Hub itself takes
_OWN_PREFIXES = (tiny_random.PREFIX, PACKAGED_PREFIX)


def find_oracle(name: str) -> PipelineOracle:
    """Return the oracle of a registered key, of a local model folder, or of a Hub id.

    Nothing is loaded from the Hub here: an id that does not exist fails when a model is built.

    Args:
        name: what the user gave as the pipeline.

    Raises:
        UnknownPipelineError: none of the three; names the nearest keys.
        BadInputError: it is of a kind that debug_model does not run, such as a maker of pictures.
        CorruptFileError: a local folder's config.json cannot be read.
    """
    if name in PIPELINE_ORACLES:
        return PIPELINE_ORACLES[name]
    if not name:
        raise UnknownPipelineError("the name of the pipeline is empty")
    folder = _path(name)
    try:
        if (folder / "config.json").is_file():
            return _local_oracle(folder)
        exists = folder.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise UnknownPipelineError(
            f"pipeline {name!r:.80} cannot be looked up: {error.strerror or error}"
        ) from error
    if exists:
        _refuse_diffusers_folder(folder)
        raise UnknownPipelineError(
            f"{name} exists but is no model folder: it has no config.json{_nearest(name)}"
        )
    reason = why_no_oracle(name)
    if reason is not None:
        raise BadInputError(reason)
    if _is_hub_id(name):
        return GenericOracle(name, device_encoding_map=_ANY_DEVICE)
    raise UnknownPipelineError(
        f"unknown pipeline {name!r:.80}: expected a registered key, a local model folder, or a "
        f"Hub id (organisation/model){_nearest(name)}"
    )


def _path(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # there is no such user
        return Path(name)


def _is_hub_id(name: str) -> bool:
    own = name.startswith(_OWN_PREFIXES)
    return not own and len(name) <= _LONGEST_HUB_ID and bool(_HUB_ID.fullmatch(name))


def nearest_names(name: str, count: int = 3) -> list[str]:
    """Return the registered keys and architectures nearest to `name`, at most `count`.

    The nearest is the first.
    """
    known = (*PIPELINE_ORACLES, *architecture_names())
    lowered = {key.lower(): key for key in known}
    # The part behind the organisation finds a key whose organisation was left out.
    tails = {key.rpartition("/")[2]: key for key in lowered}
    found = [
        *difflib.get_close_matches(name.lower(), lowered, n=count, cutoff=0.6),
        *(
            tails[tail]
            for tail in difflib.get_close_matches(
                name.lower().rpartition("/")[2], tails, n=count, cutoff=0.7
            )
        ),
    ]
    return [lowered[key] for key in dict.fromkeys(found)][:count]


@contextmanager
def nearest_names_offered(name: str) -> Iterator[None]:
    """Add the registered names nearest to `name` to the error of a model that does not exist.

    Args:
        name: what the user gave; a registered key gets no suggestions.
    """
    try:
        yield
    except UnknownPipelineError as error:
        near = [] if name in PIPELINE_ORACLES else nearest_names(name)
        hint = f"; nearest known: {', '.join(near)}"
        if not near or str(error).endswith(hint):  # contexts may nest
            raise
        raise UnknownPipelineError(f"{error}{hint}") from error


def _nearest(name: str) -> str:
    near = nearest_names(name)
    return f"; nearest known: {', '.join(near)}" if near else ""


def _local_oracle(folder: Path) -> GenericOracle:
    how = _local_architecture(folder / "config.json")
    if how.no_oracle is not None:
        raise BadInputError(f"{folder} is run as {how.name}: {how.no_oracle}")
    kind = multimodal_class([how.name]) or GenericOracle
    return kind(
        str(folder),
        device_encoding_map=_ANY_DEVICE,
        task=how.task,
        max_cpu_patches=how.max_cpu_patches,
    )


def _refuse_diffusers_folder(folder: Path) -> None:
    """Say of a folder of the package diffusers what it makes."""
    index = folder / "model_index.json"
    if index.is_file():
        name = str(read_config_object(index).get("_class_name"))
        reason = why_no_oracle(name) or f"{name} is no language model"
        raise BadInputError(f"{folder}: {reason}")


def _local_architecture(config_path: Path) -> Architecture:
    config = read_config_object(config_path)
    names = config.get("architectures")
    if names is None:  # old files lack it
        names = []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CorruptFileError(
            f"{config_path}: architectures must be a list of names, found {shown(names)}"
        )
    return run_as(names)
