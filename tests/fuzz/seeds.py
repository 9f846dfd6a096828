"""Valid JSON files with every field that their readers know, as texts."""

import json
from typing import Any


def _weight(name: str, dtype: str, shape: list[int], **fields: Any) -> dict[str, Any]:
    usual = {"rms": 0.5, "storage": None, "supplied": None, "unreadable": ""}
    return {"name": name, "dtype": dtype, "shape": shape, **usual, **fields}


MANIFEST = json.dumps(
    {
        "schema_version": 1,
        "engine": "vllm",
        "versions": {"torch": "2.13.0"},
        "model": "tiny-random/llama",
        "pipeline": "tiny-random/llama",
        "encoding": "float32",
        "device": "cpu",
        "padding": "ragged",
        "rows": [
            {"prompt": "Hi", "token_ids": [1, 2, 3], "generated": [4]},
            {"prompt": None, "token_ids": [5]},
        ],
        "steps": 2,
        "config": {"hidden_size": 256, "layer_types": ["full_attention"], "eps": 1e-6},
        "revision": None,
        "seed": 0,
        "options": {"num_hidden_layers": 1, "tensor_parallel_size": 2, "steps": [0, 1]},
        "patches": ["widen encodings"],
        "certificate": {
            "registered": 9,
            "fired": 8,
            "saved": 21,
            "skipped": [{"name": "model.lm_head", "reason": "a tuple"}],
        },
        "complete": True,
        "file_names": {"long~0123": "model.layers.0.long"},
        "raw_tensors": {"0/x": {"dtype": "bfloat16", "shape": [2, 3]}},
        "config_reads": {"hidden_size": ["model.layers.0"]},
        "stretches": [[{"row": 0, "first": 0, "count": 3}], [{"row": 1, "first": 0, "count": 1}]],
        "observer_effect": 0.0,
    }
)

OPERATIONS = json.dumps(
    {
        "version": 1,
        "tensors": {"model.mlp-output": "model.mlp@002.reshape"},
        "operations": [
            {
                "op": "aten.mul.Tensor",
                "module": "model.mlp",
                "source": "model.py:12",
                "inputs": ["model.mlp-input_0", "weight:model.mlp.weight"],
                "arguments": {"other": 0.5, "dims": [1, -1], "mode": "none", "keep": True},
                "outputs": [
                    {
                        "name": "model.mlp@001.mul",
                        "dtype": "float32",
                        "shape": [2, "total_seq_len"],
                        "view_of": None,
                        "saved": True,
                    },
                    {
                        "name": "model.mlp@002.reshape",
                        "dtype": "float32",
                        "shape": [6],
                        "view_of": "model.mlp@001.mul",
                        "saved": False,
                    },
                ],
            }
        ],
    }
)

MAP = json.dumps(
    {
        "model.norm-output": "net.ln_f-output",
        "q-output": {"fused": "qkv-output", "parts": ["q-output", "k-output"]},
        "k-output": {"fused": "qkv-output", "parts": ["q-output", "k-output"]},
        "model-input_0": "net-input_0",
    }
)

_FILE_OF_TENSOR = {
    "shape": "torch.Size([2, 3])",
    "dtype": "torch.float32",
    "value": "x.safetensors",
}
TRACE = json.dumps(
    {
        "module_path": "Net",
        "inputs": {"args": [_FILE_OF_TENSOR, "None"], "kwargs": {"mask": None, "n": "3"}},
        "outputs": {"hidden": [_FILE_OF_TENSOR], "text": "'a'"},
        "pruned": ["Net.layers.1"],
        "children": [
            {
                "module_path": "Net.layers.0",
                "call": 2,
                "inputs": {
                    "args": [
                        {
                            "shape": "torch.Size([])",
                            "dtype": "torch.float32",
                            "value": ["tensor(1.5000)"],
                            "mean": "tensor(1.5000)",
                            "std": "tensor(nan)",
                            "min": "tensor(1.5000e-03)",
                            "max": "tensor(True)",
                        }
                    ],
                    "kwargs": {},
                },
                "raised": "ValueError: no",
                "children": [],
            }
        ],
    }
)

COMPARISON = json.dumps(
    {
        "schema_version": 1,
        "verdict": "differ",
        "cut_short": False,
        "counts": {"pairs": 2},
        "tolerance": {"rtol": 0.1, "atol": 0.0},
        "pairs": [
            {
                "reference": {"name": "x", "step": 0, "rank": 1},
                "finding": "differs",
                "outcome": {
                    "kind": "compared",
                    "dtype_differs": True,
                    "metrics": {"kind": "measured", "relative_l2": 0.5},
                    "non_finite": {"first_difference": [1]},
                },
            },
            {
                "reference": {"name": "y", "step": 1, "rank": None},
                "finding": "agrees",
                "outcome": {"kind": "shape_differs", "metrics": None},
            },
        ],
    }
)

_GUILTY = {
    "module": "model.layers.0.mlp",
    "tensor": "model.layers.0.mlp-output",
    "step": 0,
    "row": 1,
    "position": 3,
    "local_error": 0.25,
    "cause": {"id": "scale", "evidence": "0.5 times"},
}
_ONE = {
    "schema_version": 1,
    "verdict": "diverge",
    "sentence": "The candidate first goes wrong in mlp.",
    "candidate_name": "port",
    "candidate_engine": "max",
    "coverage": {"replayed": 0},
    "guilty": [_GUILTY],
    "growth": [{"tensor": "model.layers.0.mlp-output"}],
    "cause": {"id": "scale", "evidence": "0.5 times"},
}
DIAGNOSIS = json.dumps(_ONE)
DIAGNOSES = json.dumps({**_ONE, "candidates": [_ONE, {**_ONE, "verdict": "agree", "guilty": []}]})

WEIGHTS_TABLE = json.dumps(
    {
        "version": 1,
        "unread": ["left.over"],
        "weights": [
            _weight("q", "float32", [3, 2], storage=3, supplied=True),
            _weight("norm", "bfloat16", [4], supplied=False),
            _weight("packed", "uint8", [5, 7], unreadable="values of uint8 are codes"),
        ],
    }
)
WEIGHTS_TENSORS = json.dumps(
    {
        "0.rows": {"dtype": "F64", "shape": [1, 3], "data_offsets": [0, 24]},
        "0.columns": {"dtype": "F64", "shape": [1, 2], "data_offsets": [24, 40]},
        "1.rows": {"dtype": "F64", "shape": [1, 4], "data_offsets": [40, 72]},
    }
)
WEIGHTS_BYTES = 72
