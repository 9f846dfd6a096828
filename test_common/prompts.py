"""Text to token ids, once, by the Hugging Face tokenizer, so that every engine gets the same."""

import operator
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from comparison.schema.errors import BadInputError, EngineError
from test_common.error_text import describe, shown
from test_common.model_load_errors import load_errors


def encode_prompts(
    tokenizer_or_path: Any,
    prompts: Sequence[str | Sequence[int]],
    *,
    apply_chat_template: bool = False,
    add_special_tokens: bool = True,
    add_bos_token: bool | None = None,
    max_length: int | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
) -> list[list[int]]:
    """Return the token ids of each prompt.

    Args:
        tokenizer_or_path: a Hugging Face tokenizer, or what to load it from; None where there is
            none, which leaves prompts of token ids.
        prompts: texts, or token ids, which pass unchanged.
        apply_chat_template: whether each text is one user message of a chat.
        add_special_tokens: whether the tokenizer adds its own to a text that is no chat.
        add_bos_token: True: exactly one BOS in front; False: none; None: as the tokenizer does.
        max_length: greatest number of tokens that leaves room to run, None for no limit.
        trust_remote_code: whether code of the model's repository may run.
        revision: Hub revision, where the tokenizer is given by path.

    Raises:
        BadInputError: no prompt, an empty or too long one, one that is neither text nor token ids,
            an id that the tokenizer does not have, no chat template, no BOS token, or no
            tokenizer.
        EngineError: the tokenizer fails; its own last error is quoted.
        UnknownPipelineError: there is no such tokenizer.
        TryAgainError: the Hub cannot be reached.
    """
    if not prompts:
        raise BadInputError("no prompt given; at least one is needed")
    problems = [prompt_problem(prompt, index=index) for index, prompt in enumerate(prompts)]
    if any(problems):
        raise BadInputError("; ".join(problem for problem in problems if problem is not None))
    tokenizer = load_tokenizer(
        tokenizer_or_path, trust_remote_code=trust_remote_code, revision=revision
    )
    rows = []
    for index, prompt in enumerate(prompts):
        if isinstance(prompt, str):
            ids = _encode(
                tokenizer,
                prompt,
                index=index,
                apply_chat_template=apply_chat_template,
                add_special_tokens=add_special_tokens,
            )
            ids = _with_bos(tokenizer, ids, add_bos_token)
        else:
            ids = _checked_ids(tokenizer, prompt, index=index)
        _check_length(ids, index=index, max_length=max_length)
        rows.append(ids)
    return rows


def prompt_problem(prompt: object, *, index: int) -> str | None:
    """Say why something can be no prompt; None where it can.

    Args:
        prompt: a text that UTF-8 can spell, or the token ids of one as whole numbers.
        index: its place among the prompts, for the message.
    """
    if isinstance(prompt, str):
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            character = prompt[error.start]
            return f"prompt {index} is no text: character {error.start} is {character!a}"
        return None
    try:
        # Not by the type Sequence: arrays and tensors of ids are as good.
        if not isinstance(prompt, bytes | bytearray | Mapping | Set):
            for place in range(len(prompt)):  # type: ignore[arg-type]  # tried out
                operator.index(prompt[place])  # type: ignore[index]  # tried out
            return None
    except TypeError:
        pass
    return f"prompt {index} must be a text or a list of token ids, found {shown(prompt)}"


def load_tokenizer(
    tokenizer_or_path: Any, *, trust_remote_code: bool = False, revision: str | None = None
) -> Any:
    """Return a Hugging Face tokenizer.

    Args:
        tokenizer_or_path: what to load it from; a tokenizer, or None, passes, and a processor
            gives its own.
        trust_remote_code: whether code of the model's repository may run.
        revision: Hub revision.

    Raises:
        UnknownPipelineError: there is no such tokenizer.
        TryAgainError: the Hub cannot be reached.
        EngineError: transformers cannot load it.
    """
    if tokenizer_or_path is None:
        return None
    if not isinstance(tokenizer_or_path, str | Path):
        # A processor of a multimodal model holds its tokenizer.
        return getattr(tokenizer_or_path, "tokenizer", tokenizer_or_path)
    from transformers import AutoTokenizer

    path = str(tokenizer_or_path)
    with load_errors(path, engine="transformers"):
        return AutoTokenizer.from_pretrained(
            path, trust_remote_code=trust_remote_code, revision=revision or "main"
        )


def render_chat(tokenizer: Any, text: str, *, images: int = 0) -> str:
    """Return a text as the one user message of a chat, up to where the answer begins.

    Args:
        tokenizer: a Hugging Face tokenizer with a chat template.
        text: what the user says.
        images: number of pictures in front of the text.

    Raises:
        BadInputError: the tokenizer has no chat template.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise BadInputError(
            f"the tokenizer of {tokenizer.name_or_path} has no chat template; "
            "run without apply_chat_template"
        )
    parts = [*[{"type": "image"}] * images, {"type": "text", "text": text}]
    chat = [{"role": "user", "content": parts if images else text}]
    return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))


def _encode(
    tokenizer: Any,
    text: str,
    *,
    index: int,
    apply_chat_template: bool,
    add_special_tokens: bool,
) -> list[int]:
    if not text:
        raise BadInputError(f"prompt {index} is empty; give at least one character")
    if tokenizer is None:
        raise BadInputError(
            f"prompt {index} is a text, and without a model path there is no tokenizer for it: "
            "give token ids (--prompt-ids, or the oracle's prompts)"
        )
    if not apply_chat_template:
        return _ids(tokenizer, text, index=index, add_special_tokens=add_special_tokens)
    # The template writes the special tokens itself.
    return _ids(tokenizer, render_chat(tokenizer, text), index=index, add_special_tokens=False)


def _ids(tokenizer: Any, text: str, *, index: int, **options: Any) -> list[int]:
    try:
        # Not verbose: what is too long is refused below, in our words.
        return [int(token) for token in tokenizer(text, verbose=False, **options)["input_ids"]]
    # Tokenizers may be code of the model's repository.
    except Exception as error:
        raise EngineError(
            f"the tokenizer cannot encode prompt {index}: {describe(error)}"
        ) from error


def _with_bos(tokenizer: Any, ids: list[int], add_bos_token: bool | None) -> list[int]:
    if add_bos_token is None:
        return ids
    bos = tokenizer.bos_token_id
    if bos is None:
        if add_bos_token:
            raise BadInputError(
                f"add_bos_token: the tokenizer of {tokenizer.name_or_path} has no BOS token"
            )
        return ids
    start = 0
    while start < len(ids) and ids[start] == bos:
        start += 1
    return [bos, *ids[start:]] if add_bos_token else ids[start:]


def _checked_ids(tokenizer: Any, ids: Sequence[int], *, index: int) -> list[int]:
    numbers = [operator.index(token) for token in ids]
    if tokenizer is None:
        return numbers
    size = len(tokenizer)
    wrong = [token for token in numbers if not 0 <= token < size]
    if wrong:
        raise BadInputError(
            f"prompt {index}: token ids {shown(wrong[:5])} are not below {size} and >= 0"
        )
    return numbers


def _check_length(ids: list[int], *, index: int, max_length: int | None) -> None:
    if not ids:
        raise BadInputError(f"prompt {index} gives no token; give a longer one")
    if max_length is not None and len(ids) > max_length:
        raise BadInputError(
            f"prompt {index} has {len(ids)} tokens, at most {max_length} fit; shorten it or raise "
            "max_length"
        )
