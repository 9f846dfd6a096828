"""All fuzzed readers by name: each is a function of one input."""

from collections.abc import Callable

from tests.fuzz import folders, indexes, json_files, pickle_files, tensor_files

READERS: dict[str, Callable[[bytes], None]] = {
    "safetensors": tensor_files.safetensors_input,
    "partial": tensor_files.partial_input,
    "sketches": tensor_files.sketch_input,
    "max": tensor_files.max_input,
    "npy": tensor_files.npy_input,
    "pt": pickle_files.pt_input,
    "manifest": json_files.manifest_input,
    "operations": json_files.operations_input,
    "weights": json_files.weights_input,
    "map": json_files.map_input,
    "trace": json_files.trace_input,
    "dump": folders.dump_input,
    "run": folders.run_input,
    "index": indexes.index_input,
    "result": json_files.result_input,
}
