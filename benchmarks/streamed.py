"""Measures a reference whose weights stay in their files: anonymous memory, seconds, equality.

Run by hand: `python -m benchmarks.streamed [--gigabytes 6] [--tokens 16] [--rounds 5]`. It writes
a checkpoint like Llama's in bfloat16 to a folder that goes away again, and runs each way in a
process of its own, in float32. A process's RssAnon is looked at every 10 ms: mapped files are the
page cache's and do not count, unlike in its peak RSS. The numbers are in benchmarks/README.md.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

WAYS = ("streamed", "accelerate", "loaded")
_ROOM = 18e9  # free memory without which nothing is loaded whole, bytes
_STATUS = re.compile(r"RssAnon:\s+(\d+) kB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One process.

    Attributes:
        seconds: how long it took in all; of a forward the forward alone.
        peak_bytes: the most anonymous memory that it was seen to have.
        output: what it printed.
    """

    seconds: float
    peak_bytes: int
    output: str


def main() -> None:
    """Print a table of the ways to run one forward, and what a diff takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=6.0, help="Size of the checkpoint.")
    parser.add_argument("--hidden", type=int, default=4096, help="Multiple of 128.")
    parser.add_argument("--tokens", type=int, default=16, help="Length of the prompt.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--forward", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.forward is not None:
        print(json.dumps(forward(given.forward[0], Path(given.forward[1]), tokens=given.tokens)))
        return
    with tempfile.TemporaryDirectory(prefix="streamed-") as folder:
        checkpoint = Path(folder) / "model"
        size = write_checkpoint(checkpoint, size_bytes=given.gigabytes * 1e9, hidden=given.hidden)
        print(f"checkpoint: {size / 1e9:.2f} GB of bfloat16")
        _print_forwards(checkpoint, ways=given.ways, tokens=given.tokens, rounds=given.rounds)
        _print_diff(checkpoint, Path(folder), tokens=given.tokens)


def write_checkpoint(folder: Path, *, size_bytes: float, hidden: int) -> int:
    """Write a model like Llama's, one file a layer, and return its size in bytes.

    Args:
        folder: a new folder.
        size_bytes: about how large it gets.
        hidden: of the model; the rest has the proportions of Llama 2 7B with fewer kv heads.
    """
    import shutil

    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, LlamaConfig

    from test_common.tiny_checkpoints.checkpoint import ensure_tiny_checkpoint

    inner, vocabulary = hidden * 43 // 16, 8 * hidden
    a_layer = 2 * (2 * hidden * hidden + 2 * hidden * (hidden // 4) + 3 * hidden * inner)
    layers = max(1, round((size_bytes - 4 * vocabulary * hidden) / a_layer))
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        num_key_value_heads=hidden // 128,
        tie_word_embeddings=False,
        dtype="bfloat16",
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(folder)
    for file in ensure_tiny_checkpoint("llama").glob("tokenizer*"):
        shutil.copy(file, folder)
    with torch.device("meta"):
        shapes = {
            k: v.shape for k, v in AutoModelForCausalLM.from_config(config).state_dict().items()
        }
    parts: dict[str, dict[str, Any]] = {}
    for name, shape in shapes.items():
        found = re.search(r"layers\.(\d+)\.", name)
        parts.setdefault(found.group(1) if found else name, {})[name] = shape
    index, total = {}, 0
    generator = torch.Generator().manual_seed(0)
    for number, part in enumerate(parts.values()):
        file_name = f"model-{number:05d}.safetensors"
        weights = {name: _weight(shape, generator) for name, shape in part.items()}
        save_file(weights, folder / file_name, metadata={"format": "pt"})
        total += sum(weight.nbytes for weight in weights.values())
        index |= dict.fromkeys(weights, file_name)
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)
    return total


def _weight(shape: Sequence[int], generator: Any) -> Any:
    import torch

    if len(shape) == 1:
        return (1 + torch.randn(*shape, generator=generator) / 8).bfloat16()
    return (torch.randn(*shape, generator=generator) / shape[-1] ** 0.5).bfloat16()


def forward(way: str, folder: Path, *, tokens: int) -> dict[str, Any]:
    """Run one forward in this process, and say how long it took and what it gave.

    Args:
        way: one of `WAYS`.
        folder: of the checkpoint.
        tokens: length of the prompt.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from test_common.streamed_model import streamed_weights

    arguments: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    if way == "accelerate":  # it refuses to leave all of a model on the disk
        arguments["device_map"] = {"model.norm": "cpu", "lm_head": "disk", "model.layers": "disk"}
        arguments["device_map"] |= {"model.embed_tokens": "disk", "model.rotary_emb": "cpu"}
    with streamed_weights(wanted=way == "streamed"):
        model = AutoModelForCausalLM.from_pretrained(folder, **arguments)
    began = time.perf_counter()
    with torch.no_grad():
        logits = model(input_ids=torch.arange(1, tokens + 1)[None]).logits
    seconds = time.perf_counter() - began
    digest = hashlib.sha256(logits.contiguous().numpy().tobytes()).hexdigest()[:12]
    return {"seconds": seconds, "digest": digest}


def run(arguments: Sequence[str]) -> Measured:
    """Run a module of this project as a process and watch its anonymous memory.

    Args:
        arguments: of Python.

    Raises:
        RuntimeError: it ended with another exit code than 0 and 1.
    """
    began, peak = time.perf_counter(), 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    command = [sys.executable, *arguments]
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen(command, stdout=said, stderr=said, env=environment) as process:
            while process.poll() is None:
                peak = max(peak, _anonymous_bytes(process.pid))
                time.sleep(0.01)
        said.seek(0)
        output = said.read()
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}:\n{output}")
    return Measured(seconds=time.perf_counter() - began, peak_bytes=peak, output=output)


def _anonymous_bytes(pid: int) -> int:
    try:
        found = _STATUS.search(Path(f"/proc/{pid}/status").read_text())
    except OSError:  # it has ended
        return 0
    return int(found.group(1)) * 1024 if found else 0


def _print_forwards(folder: Path, *, ways: Sequence[str], tokens: int, rounds: int) -> None:
    found: dict[str, list[Measured]] = {way: [] for way in ways}
    digests: dict[str, set[str]] = {way: set() for way in ways}
    for _ in range(rounds):
        for way in ways:
            if way == "loaded" and _free_bytes() < _ROOM and _size(folder) > 1e9:
                continue
            size = ("--tokens", str(tokens))
            measured = run(["-m", "benchmarks.streamed", "--forward", way, str(folder), *size])
            told = json.loads(measured.output.splitlines()[-1])
            digests[way].add(told["digest"])
            found[way].append(
                Measured(
                    seconds=told["seconds"], peak_bytes=measured.peak_bytes, output=measured.output
                )
            )
    print("| way | forward, s | spread, s | anonymous memory, GB | logits |\n" + "|---" * 5 + "|")
    for way, runs in found.items():
        if not runs:
            print(f"| {way} | not run: less than {_ROOM / 1e9:.0f} GB are free | | | |")
            continue
        seconds = [measured.seconds for measured in runs]
        peak = max(measured.peak_bytes for measured in runs)
        print(
            f"| {way} | {median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f} | "
            f"{peak / 1e9:.2f} | {', '.join(sorted(digests[way]))} |"
        )


def _print_diff(checkpoint: Path, folder: Path, *, tokens: int) -> None:
    """Capture once as the candidate, and hold a streamed reference against it."""
    ids = ",".join(map(str, range(1, tokens + 1)))
    run_of = ["--encoding", "float32", "--prompt-ids", ids, "--num-hidden-layers", "all"]
    run_of += ["--num-steps", "1", "--pipeline", str(checkpoint)]
    candidate = folder / "candidate"
    captured = ["--framework", "torch", "--stream", "--weights", "-o", str(candidate)]
    capture = run(["-m", "tools.debug_model", *captured, *run_of])
    sides = ["--reference", "torch", "--stream-reference", "--candidate", str(candidate)]
    diff = run(["-m", "tools.diff_models", *sides, *run_of])
    verdict = next((line for line in diff.output.splitlines() if "agree" in line.lower()), "?")
    print("| command | seconds | anonymous memory, GB |\n" + "|---" * 3 + "|")
    for name, measured in (("debug_model --stream", capture), ("diff_models", diff)):
        print(f"| {name} | {measured.seconds:.1f} | {measured.peak_bytes / 1e9:.2f} |")
    print(f"verdict: {verdict}")


def _free_bytes() -> int:
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found.group(1)) * 1024 if found else 0


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


if __name__ == "__main__":
    main()
