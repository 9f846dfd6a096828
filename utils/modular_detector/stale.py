"""Refuses an index that was made of other code, or in another way, than what it is asked about."""

from __future__ import annotations

import warnings

from utils.command import BadInputError
from utils.modular_detector.embedder import POOLING, Embedder
from utils.modular_detector.index import Index
from utils.modular_detector.provenance import Provenance

_REBUILD = "build it anew with --build, which keeps what did not change"


def check_provenance(index: Index, present: Provenance) -> None:
    """Check that an index is of the models that are there now.

    Raises:
        BadInputError: it is of another release or commit.
    """
    if index.provenance is None:
        warnings.warn(
            "the index does not say of which transformers, commit, model and pooling it is: scores "
            "hold if it was made as this one makes them, and differences are not shown",
            stacklevel=2,
        )
    elif index.provenance != present:
        raise BadInputError(
            f"the index is stale: it is of {index.provenance}, and the models here are of "
            f"{present}; {_REBUILD}, or name the models that it is of with --models-root"
        )


def check_embedding(index: Index, embedder: Embedder) -> None:
    """Check that the embeddings of an index and those of a model can be compared.

    Raises:
        BadInputError: they are of another model, pooling or width.
    """
    info = index.embedding
    if info is not None and (info.model, info.pooling) != (embedder.name, POOLING):
        raise BadInputError(
            f"the index was embedded by {info.model} with {info.pooling} pooling, and the query "
            f"would be by {embedder.name} with {POOLING} pooling; {_REBUILD}, or leave "
            "--embedding-model out"
        )
    width = index.embeddings.shape[1] if index.embeddings is not None else 0
    if width != embedder.width:
        raise BadInputError(
            f"the embeddings of the index are {width} wide, those of {embedder.name} "
            f"{embedder.width}; name the model that made the index with --embedding-model"
        )
