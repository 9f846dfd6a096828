"""Checks an oracle before anything is built of it: a user's may hold anything."""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any

from comparison.schema.errors import AccuracyToolsError, BadInputError
from oracles.generic_oracle import GenericOracle
from oracles.made_checkpoint import MadeCheckpointOracle
from oracles.multimodal import MultimodalOracle
from oracles.oracle import PipelineOracle
from test_common.error_text import describe, shown
from test_common.image_families import IMAGE_FAMILIES
from test_common.image_preprocessing import ImagePreprocessing
from test_common.max_cpu_patches import CPU_PATCHES
from test_common.oracle_errors import oracle_label
from test_common.prompts import prompt_problem

TASKS = ("TEXT_GENERATION", "EMBEDDINGS_GENERATION")

# Takes a value, and says what is wrong with it; None where nothing is.
Check = Callable[[Any], str | None]


def checked_oracle(oracle: object, *, name: str | None = None) -> PipelineOracle:
    """Return an oracle whose values are all of the kinds that a run takes.

    Nothing is loaded or made for it.

    Args:
        oracle: an instance of `PipelineOracle`.
        name: what messages call it, None for its label.

    Raises:
        BadInputError: it is no such instance, or values of it are wrong or cannot be read; all of
            them are named.
    """
    if not isinstance(oracle, PipelineOracle):
        which = "" if name is None else f"{name}: "
        raise BadInputError(f"{which}expected a PipelineOracle, found {shown(oracle)}")
    problems = list(_problems(oracle))
    if problems:
        which = f"oracle {oracle_label(oracle)}" if name is None else name
        raise BadInputError(f"{which}: {'; '.join(problems)}")
    return oracle


def _problems(oracle: PipelineOracle) -> Iterator[str]:
    checks = dict(_CHECKS)
    if isinstance(oracle, GenericOracle):
        checks |= _GENERIC_CHECKS
        if _loads_model_path(oracle):
            checks["model_path"] = _path
    if isinstance(oracle, MultimodalOracle):
        checks |= _MULTIMODAL_CHECKS
        # A subclass with a prepare of its own needs none.
        if type(oracle).prepare is MultimodalOracle.prepare or hasattr(
            type(oracle), "preprocessing"
        ):
            checks["preprocessing"] = _preprocessing
    if isinstance(oracle, MadeCheckpointOracle):
        del checks["model_path"]  # reading it makes the checkpoint
    elif _has_adapter(oracle):
        # Reading it fetches the model and merges the adapter: a run does, and says what is wrong.
        check = checks.pop("model_path")
        if isinstance(oracle, GenericOracle):
            checks["base_model_path"] = check
    for attribute, check in checks.items():
        try:
            problem = check(getattr(oracle, attribute))
        # Our own errors say what is wrong, and whether it passes by itself.
        except (KeyboardInterrupt, AccuracyToolsError):
            raise
        # A user's property may raise anything, and exit.
        except BaseException as error:
            problem = f"cannot be read: {describe(error)}"
        if problem is not None:
            yield f"{_AS_WRITTEN.get(attribute, attribute)} {problem}"


def _has_adapter(oracle: PipelineOracle) -> bool:
    try:
        return oracle.lora_path is not None
    except KeyboardInterrupt:
        raise
    # A user's property may raise anything, and exit; the check of lora_path says so.
    except BaseException:
        return True


def _loads_model_path(oracle: GenericOracle) -> bool:
    methods = ("create_max_pipeline", "create_torch_pipeline")
    return any(getattr(type(oracle), name) is getattr(GenericOracle, name) for name in methods)


def _expected(what: str, value: object) -> str:
    return f"must be {what}, found {shown(value)}"


def _is_path(value: Any) -> bool:
    return isinstance(value, str | PathLike) and bool(str(value))


def _path(value: Any) -> str | None:
    return None if _is_path(value) else _expected("a local folder or a Hub id", value)


def _folder(value: Any) -> str | None:
    return None if _is_path(value) else _expected("a local folder", value)


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else _expected("a text", value)


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else _expected("True or False", value)


def _positive(value: Any) -> str | None:
    try:
        fits = not isinstance(value, bool) and operator.index(value) > 0
    except TypeError:
        fits = False
    return None if fits else _expected("a whole number of at least 1", value)


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _encodings(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return _expected("a dictionary of cpu and gpu to lists of encodings", value)
    for device, encodings in value.items():
        if not isinstance(device, str):
            return f"has a device that is no text: {shown(device)}"
        if not _is_list(encodings) or not all(isinstance(name, str) for name in encodings):
            return f"of {device} {_expected('a list of encodings', encodings)}"
    return None


def _prompts(value: Any) -> str | None:
    if not _is_list(value):
        return _expected("a list of prompts", value)
    problems = (prompt_problem(prompt, index=index) for index, prompt in enumerate(value))
    found = [problem for problem in problems if problem is not None]
    return f"are wrong: {', '.join(found)}" if found else None


def _task(value: Any) -> str | None:
    if str(getattr(value, "name", value)).upper() in TASKS:
        return None
    return _expected(" or ".join(TASKS), value)


def _patches(value: Any) -> str | None:
    if not _is_list(value):
        return _expected("a list of names", value)
    unknown = [shown(name) for name in value if name not in list(CPU_PATCHES)]
    return f"has no {', '.join(unknown)}: there are {', '.join(CPU_PATCHES)}" if unknown else None


def _parameters(value: Any) -> str | None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return _expected("a dictionary of names to values", value)
    problems = (
        (key, check(value[key])) for key, check in _PARAMETER_CHECKS.items() if key in value
    )
    found = [f"{key} {problem}" for key, problem in problems if problem is not None]
    return f"are wrong: {', '.join(found)}" if found else None


def _weight_paths(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return _expected("a dictionary of encodings to files", value)
    wrong = [key for key, path in value.items() if not isinstance(key, str) or _path(path)]
    return f"has no file for {shown(wrong[0])}" if wrong else None


def _loader(value: Any) -> str | None:
    if isinstance(value, str) or hasattr(value, "from_pretrained"):
        return None
    return _expected("a class of transformers, or its name", value)


def _preprocessing(value: Any) -> str | None:
    if not isinstance(value, ImagePreprocessing):
        return _expected("an ImagePreprocessing", value)
    if value.family not in IMAGE_FAMILIES:
        return f"has family {shown(value.family)}: there are {', '.join(IMAGE_FAMILIES)}"
    module, _, name = str(value.image_processor_cls).partition(":")
    if not module or not name.isidentifier():
        return f"has image_processor_cls {_expected('module:Class', value.image_processor_cls)}"
    token, placeholder = value.expanded_token, value.placeholder
    if not isinstance(token, str) or not token:
        return f"has expanded_token {_expected('a text', token)}"
    if not isinstance(placeholder, str) or placeholder.count(token) != 1:
        wanted = f"a text with {shown(token)} in it once"
        return f"has placeholder {_expected(wanted, placeholder)}"
    names = value.model_inputs
    if not _is_list(names) or not names or not all(isinstance(name, str) for name in names):
        return f"has model_inputs {_expected('a list of names', names)}"
    return None


_PARAMETER_CHECKS: Mapping[str, Check] = {
    "max_length": _or_none(_positive),
    "huggingface_model_revision": _or_none(_text),
    "pool_embeddings": _flag,
    "trust_remote_code": _flag,
}
_CHECKS: Mapping[str, Check] = {
    "label": _text,
    "model_path": _or_none(_path),
    "device_encoding_map": _encodings,
    "inputs": _prompts,
    "task": _task,
    "default_batch_size": _or_none(_positive),
    "use_cache": _flag,
    "apply_chat_template": _flag,
    "add_bos_token": _or_none(_flag),
    "config_params": _parameters,
    "max_cpu_patches": _patches,
    "lora_path": _or_none(_folder),
    "takes_images": _flag,
}
_GENERIC_CHECKS: Mapping[str, Check] = {
    "torch_model_path": _or_none(_path),
    "weight_path_map": _weight_paths,
    "auto_model_cls": _or_none(_loader),
    "auto_processor_cls": _or_none(_loader),
}
_MULTIMODAL_CHECKS: Mapping[str, Check] = {"default_image_count": _positive}
# Arguments of GenericOracle that are kept under another name.
_AS_WRITTEN = {
    "default_batch_size": "batch_size",
    "inputs": "prompts",
    "default_image_count": "image_count",
    "base_model_path": "model_path",
}
