"""Prints what a program in vLLM's environment imports, as JSON on the last line."""

import importlib.util
import json
import sys

import torch
import transformers
import vllm

if __name__ == "__main__":
    found = {
        "path": sys.path,
        "versions": {m.__name__: m.__version__ for m in (torch, transformers, vllm)},
        "absent": [n for n in ("accelerate", "max", "pytest") if not importlib.util.find_spec(n)],
    }
    print(json.dumps(found))
