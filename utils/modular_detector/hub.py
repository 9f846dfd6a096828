"""Fetches and publishes an index as a data set of the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from utils.command import BadInputError
from utils.modular_detector.index_files import FOREIGN_TOKENS_FILE, INDEX_FILES, holds_index

DEFAULT_DATASET: Final = "hf-internal-testing/transformers_code_embeddings"


def fetch_index(dataset: str) -> Path:
    """Download an index into the Hub's cache, and return its folder.

    Raises:
        BadInputError: the Hub cannot be reached, or has no index there.
    """
    from huggingface_hub import snapshot_download

    with _hub_errors(f"no index could be fetched from the data set {dataset}"):
        folder = Path(
            snapshot_download(
                dataset, repo_type="dataset", allow_patterns=[*INDEX_FILES, FOREIGN_TOKENS_FILE]
            )
        )
    if not holds_index(folder):
        raise BadInputError(
            f"the data set {dataset} holds no index of code; name another with --hub-dataset, or "
            "build one with --build"
        )
    return folder


def push_index(folder: Path, dataset: str) -> str:
    """Upload an index, making the data set where there is none.

    Returns:
        The address of the commit.

    Raises:
        BadInputError: the Hub cannot be reached, or refuses.
    """
    from huggingface_hub import HfApi

    with _hub_errors(f"the index was built in {folder} but not pushed to {dataset}"):
        api = HfApi()
        api.create_repo(dataset, repo_type="dataset", exist_ok=True)
        commit = api.upload_folder(
            repo_id=dataset,
            repo_type="dataset",
            folder_path=folder,
            allow_patterns=list(INDEX_FILES),
            delete_patterns=[*INDEX_FILES, FOREIGN_TOKENS_FILE],
            commit_message="New index of code",
        )
    return str(commit.commit_url)


@contextmanager
def _hub_errors(what: str) -> Iterator[None]:
    import httpx
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        yield
    except (HfHubHTTPError, HFValidationError, httpx.HTTPError, OSError) as error:
        first = str(error).strip().split("\n", maxsplit=1)[0]
        raise BadInputError(
            f"{what}: {type(error).__name__}: {first}; check the network, the name and your login, "
            "or work from an index that --build makes"
        ) from error
