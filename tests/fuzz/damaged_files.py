"""Files on which a reader once failed, each as the input of its harness that spells it."""

import base64
import io
import json
import pickletools
import struct
import zipfile
from collections.abc import Iterator

import numpy as np

_RAW = b"\0"  # of most harnesses: what follows is the file
_RAW_PT = b"\0\0"
_LATIN1 = b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86Rq\x01"
_HEX = b"c_codecs\nencode\nh\x01X\x03\x00\x00\x00hex\x86Rq\x01"
_EIGHT_GIGABYTES = b"\x8a\x05\x00\x00\x00\x00\x02"
# What torch's safe loading makes of these takes all memory, or all the time that there is.
PICKLES = {
    "bytearray": b"\x80\x02cbuiltins\nbytearray\n" + _EIGHT_GIGABYTES + b"\x85R.",
    "bytearray of Python 2": b"\x80\x02c__builtin__\nbytearray\n" + _EIGHT_GIGABYTES + b"\x85R.",
    "bytearray passed on": b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(cbuiltins\nbytearray\n"
    b"ctorch\nTensor\n" + _EIGHT_GIGABYTES + b"\x85}tR.",
    "bytes that double": b"\x80\x02" + _LATIN1 + _HEX * 36 + b".",
    "key of a tuple of tuples": b"\x80\x02K\x01\x85q\x00"
    + b"h\x00h\x00\x86q\x00" * 60
    + b"}h\x00K\x01s.",
    "set again and again": b"\x80\x02]q\x00("
    + b"".join(b"J" + struct.pack("<i", number) for number in range(3000))
    + b"e"
    + b"cbuiltins\nset\nh\x00\x85R" * 20_000
    + b".",
}


def inputs() -> Iterator[tuple[str, str, bytes]]:
    """Give each with the name of its reader and what it is."""
    dates = io.BytesIO()
    np.save(dates, np.zeros(3, "<M8[s]"))
    yield "npy", "dates", _RAW + dates.getvalue()
    name = '"' + "k" * 3000 + '"'
    entry = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    for what, header in {
        "long name, no object": f"{{{name}:1}}",
        "long name, no shape": f'{{{name}:{{"dtype":"F32"}}}}',
        "long name, no such dtype": f"{{{name}:{entry.replace('F32', 'F31')}}}",
        "long name, wrong size": f"{{{name}:{entry.replace('[2]', '[3]')}}}",
        "same as no text": f'{{"__metadata__":{{"same_as":"{{\\"b\\":[]}}"}},"a":{entry}}}',
        "endless shape": f'{{"a":{entry.replace("[2]", "[" + "9," * 3000 + "9]")}}}',
    }.items():
        yield "safetensors", what, _RAW + _safetensors(header)
    yield "map", "long names for one", _RAW + f'{{{name}:"x","b":"x"}}'.encode()
    yield "manifest", "long name", _RAW + f'{{"schema_version":1,{name}:1}}'.encode()
    entry = '{"name":"w","dtype":"float32","shape":[],"rms":' + "9" * 400 + ',"unreadable":"x"}'
    table = json.dumps(f'{{"version":1,"unread":[],"weights":[{entry}]}}')
    weights = _safetensors(f'{{"__metadata__":{{"weights":{table}}}}}', data=b"")
    yield "weights", "a number that no float holds", _RAW + weights
    long_name = f'{{"module_path":"N","outputs":{{{name}:{{"shape":"torch.Size([])","dtype":"x",'
    yield "trace", "long name", _RAW + f'{long_name}"value":1}}}}}}'.encode()
    twice = ",".join(['"a":"1"'] * 100_000)
    trace = f'{{"module_path":"N","inputs":{{"args":[],"kwargs":{{{twice}}}}}}}'
    yield "trace", "a key many times", _RAW + trace.encode()
    yield "dump", "a stretch of no row", base64.b64decode("+f8c7PUBCgoKCgoKCgj/")
    far = b"\xd9\xa3\xa3\xa3\\\\" + b"\xae" * 45 + b"+\\la\x87\x9aS\x8d\x8e[\0;;\0;;"
    yield "dump", "a stretch of 2^31 tokens", far
    for what, pickled in PICKLES.items():
        yield "pt", what, _RAW_PT + archive(pickled)
    cut = archive(b"\x80\x02}.").replace(b"\x80\x02}.", b"\x80\x02].", 1)
    yield "pt", "a record of another checksum", _RAW_PT + cut
    nan = b"G\x7f\xf8" + bytes(6)  # no NaN is another's key, and all of them are spelled alike
    pairs = nan + _tensor_instructions() + b"q\x00" + (nan + b"h\x00") * 10_000
    yield "pt", "NaN as key", _RAW_PT + archive(b"\x80\x02}(" + pairs + b"u.")
    packed = archive(b"\x80\x02" + b"N" * (16 << 20) + b"}.", packing=zipfile.ZIP_DEFLATED)
    yield "pt", "a record that unpacks", _RAW_PT + packed


def archive(pickled: bytes, *, packing: int = zipfile.ZIP_STORED) -> bytes:
    """Make a .pt file of one tensor's values and any pickle."""
    file = io.BytesIO()
    records = {"data.pkl": pickled, "byteorder": b"little", "version": b"3\n", "data/0": bytes(8)}
    with zipfile.ZipFile(file, "w", packing) as new:
        for name, content in records.items():
            new.writestr(f"x/{name}", content)
    return file.getvalue()


def _safetensors(header: str, *, data: bytes = bytes(8)) -> bytes:
    text = header.encode()
    return len(text).to_bytes(8, "little") + text + data


def _tensor_instructions() -> bytes:
    """Return instructions that leave a tensor of two values on the stack."""
    made = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
        b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x02tQK\x00K\x02\x85K\x01\x85\x89"
        b"ccollections\nOrderedDict\n)RtR"
    )
    assert list(pickletools.genops(made + b"."))
    return made
