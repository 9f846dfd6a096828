"""The fuzzed reader of .pt files: damage to the archive, and to the instructions of its pickle."""

import functools
import io
import pickletools
import zipfile
from pathlib import Path

from comparison.store.pt_file import list_pt_keys, read_pt_tensor
from tests.fuzz.checked import check_array, check_reader
from tests.fuzz.steps import Steps, damaged

_RECORD, _DIRECTORY, _END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
# Put between the instructions of a pickle.
_INSTRUCTIONS = (
    b"0",
    b"(",
    b")",
    b"]",
    b"}",
    b"N",
    b"\x86",
    b"\x85",
    b"R",
    b"\x81",
    b"b",
    b"s",
    b"u",
    b"a",
    b"e",
    b"t",
    b"Q",
    b"q\x00",
    b"h\x00",
    b"h\x01",
    b"h\x05",
    b"J\xff\xff\xff\x7f",
    b"J\xff\xff\xff\xff",
    b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40",
    b"K\x00",
    b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"X\xff\xff\xff\xff",
    b"X\x01\x00\x00\x00a",
    b"cbuiltins\nbytearray\n",
    b"c_codecs\nencode\n",
    b"cbuiltins\nset\n",
    b"cos\nsystem\n",
    b"cbuiltins\neval\n",
    b"ctorch\nFloatTensor\n",
    b"ctorch\nSize\n",
    b"ctorch\nfloat32\n",
    b"ctorch\nFloatStorage\n",
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_parameter\n",
    b"ctorch._utils\n_rebuild_sparse_tensor\n",
    b"ctorch._utils\n_rebuild_qtensor\n",
    b"ctorch._utils\n_rebuild_nested_tensor\n",
    b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n",
    b"ccollections\nOrderedDict\n",
    b".",
    b"\x93",
)


def pt_input(data: bytes) -> None:
    """Read one .pt file."""
    check_reader(_read, "x.pt", _content(Steps(data)))


def _read(path: Path) -> None:
    for key in list_pt_keys(path) or (None,):
        check_array(read_pt_tensor(path, key), path)


def _content(steps: Steps) -> bytes:
    content = _seeds()[steps.below(len(_seeds()))]
    match steps.below(5):
        case 0:
            return steps.rest()
        case 1:
            return damaged(content, steps)
        case 2:  # the archive's own records
            return _archive_damaged(content, steps)
        case _:
            return _pickle_damaged(content, steps)


def _archive_damaged(content: bytes, steps: Steps) -> bytes:
    for _ in range(1 + steps.below(3)):
        mark = steps.one_of((_RECORD, _DIRECTORY, _END))
        places = [at for at in range(len(content)) if content.startswith(mark, at)]
        if not places:
            return content
        begin = steps.one_of(places)
        content = damaged(content, steps, begin=begin, end=begin + 60)
    return content


def _pickle_damaged(content: bytes, steps: Steps) -> bytes:
    """Change, drop and put in instructions of the pickle, in an archive that is sound."""
    if not content.startswith(_RECORD):
        return damaged(content, steps, end=900)  # the pickles of the form before zip
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        held = {name: old.read(name) for name in old.namelist()}
    pickled = next(name for name in held if name.endswith("/data.pkl"))
    parts = list(_parts(held[pickled]))
    for _ in range(1 + steps.below(6)):
        at = steps.below(len(parts) + 1)
        match steps.below(4):
            case 0:
                del parts[at : at + 1 + steps.below(4)]
            case 1:
                parts.insert(at, steps.one_of(_INSTRUCTIONS))
            case 2:
                parts[at : at + 1] = [steps.one_of(_INSTRUCTIONS)]
            case _:
                parts[at:at] = parts[at : at + 1 + steps.below(8)]
    held[pickled] = b"".join(parts)
    file = io.BytesIO()
    packing = zipfile.ZIP_DEFLATED if steps.below(16) == 15 else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", packing) as new:
        for name, record in held.items():
            new.writestr(name, record)
    return file.getvalue()


def _parts(pickled: bytes) -> list[bytes]:
    places = [at for _, _, at in pickletools.genops(pickled) if at is not None]
    return [pickled[a:b] for a, b in zip(places, [*places[1:], len(pickled)], strict=True)]


@functools.cache
def _seeds() -> tuple[bytes, ...]:
    import torch

    several = {
        "a": torch.arange(6.0).reshape(2, 3),
        "b": [torch.ones(2, dtype=torch.bfloat16), torch.tensor(True)],
        ("c", 1): torch.nn.Parameter(torch.zeros(3, dtype=torch.float16)),
        "d": torch.zeros(4, dtype=torch.float8_e4m3fn),
        "e": torch.zeros(1).expand(5),
        "f": torch.zeros(2, dtype=torch.complex64).conj(),
        "n": 3,
        "s": {1, 2},
        "z": torch.ones(2).to_sparse(),
    }
    seeds = []
    for content in (torch.arange(6).reshape(3, 2), several):
        for zipped in (True, False):
            file = io.BytesIO()
            torch.save(content, file, _use_new_zipfile_serialization=zipped)
            seeds.append(file.getvalue())
    return tuple(seeds)
