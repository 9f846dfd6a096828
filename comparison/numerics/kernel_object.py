"""Compiled code, kept in a file so that numba is loaded once and no more.

numba takes long to import, and several seconds to compile; llvmlite, which it is built on, loads
what was compiled in a fraction of that.
"""

import ctypes
import hashlib
import json
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

from comparison.numerics.dtypes import Array

# Functions that the code calls where Python code raises an error, which this code never does.
_NEVER_CALLED = ("Py", "_Py", "numba_", "NRT_")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """What is compiled.

    Attributes:
        name: what its file begins with.
        module: a module that compiles its function `entry` when it is imported.
        sources: the files beside this one that the compiled code depends on.
        arguments: C types of what `entry` takes.
        processor_features: what the processor must have, if it is of a kind that may lack it.
    """

    name: str
    module: str
    sources: tuple[str, ...]
    arguments: tuple[type[Any], ...]
    processor_features: tuple[str, ...] = ()


class KeptKernel:
    """Compiled code in memory, which lives as long as this object.

    Attributes:
        call: takes what `entry` takes, with addresses of arrays; gives up Python's lock.
    """

    def __init__(
        self, name: str, symbols: list[str], code: bytes, *, arguments: tuple[type[Any], ...]
    ) -> None:
        """Link compiled code.

        Args:
            arguments: C types of what the function takes.
            name: of the function to call.
            symbols: what it needs from outside.
            code: an object file of this machine.

        Raises:
            LookupError: something that it needs is not there.
        """
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        for symbol in symbols:
            if symbol.startswith(_NEVER_CALLED):
                llvm.add_symbol(symbol, ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value)
            elif llvm.address_of_symbol(symbol) is None:
                raise LookupError(f"the compiled code needs {symbol}, which is not there")
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(llvm))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = self._engine.get_function_address(name)
        self.call: Callable[..., None] = ctypes.CFUNCTYPE(None, *arguments)(address)


def address_of(array: Array) -> int:
    """Return where in memory an array begins, as compiled code takes it."""
    address: int = array.__array_interface__["data"][0]  # faster than array.ctypes.data
    return address


class LoadedCode:
    """What calls compiled code; subclasses say which."""

    CODE: ClassVar[KernelCode]

    def __init__(self, kernel: KeptKernel) -> None:
        """Take the compiled code."""
        self._kernel = kernel

    @classmethod
    def load(cls, folder: Path, *, compile_anew: bool = True) -> Self | None:
        """Load the compiled code; None where that is not possible.

        Args:
            folder: where it is kept.
            compile_anew: whether to compile and keep it, where it is not.
        """
        kernel = load_kernel(cls.CODE, folder, compile_anew=compile_anew)
        return None if kernel is None else cls(kernel)


def load_kernel(code: KernelCode, folder: Path, *, compile_anew: bool) -> KeptKernel | None:
    """Load compiled code, or compile and keep it.

    Args:
        code: what to load.
        folder: where it is kept; made if need be. Where it cannot be written, nothing is kept.
        compile_anew: whether to compile it, where it is not kept.

    Returns:
        None where it is not kept and not to be compiled, or where numba or llvmlite is not
        installed, or not for this NumPy or processor.
    """
    try:
        _check_processor(code)
        path = folder / f"{code.name}-{_key(code)}"
        kept = _read(path)
        if kept is None:
            kept = _compile_and_keep(code, path) if compile_anew else None
        return None if kept is None else KeptKernel(*kept, arguments=code.arguments)
    except (ImportError, LookupError):
        return None


def _check_processor(code: KernelCode) -> None:
    """Refuse to compile what would call functions in the place of instructions.

    Raises:
        LookupError: the processor lacks something.
    """
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    for name in code.processor_features:
        if not features.get(name, True):  # of other processors' features nothing is said
            raise LookupError(f"the processor lacks {name}")


def _key(code: KernelCode) -> str:
    """Name all that the compiled code depends on."""
    import llvmlite.binding as llvm

    parts = (
        llvm.llvm_version_info,
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )
    digest = hashlib.sha256(repr(parts).encode())
    for name in code.sources:
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()[:20]


def _machine(llvm: Any) -> Any:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )


def _read(path: Path) -> tuple[str, list[str], bytes] | None:
    """Read what was kept: a line of JSON with the names and a check sum, then the code."""
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        table = json.loads(head)
        name, symbols = table["name"], table["symbols"]
        # A name that is not in the code, or a symbol too few, would end the process.
        if table["sha256"] == digest_of(name, symbols, code):
            return name, symbols, code
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # not there, or damaged: compiled anew
    return None


def digest_of(name: str, symbols: list[str], code: bytes) -> str:
    """Return the check sum of all that is kept of compiled code."""
    return hashlib.sha256(json.dumps([name, symbols]).encode() + b"\n" + code).hexdigest()


def _compile_and_keep(source: KernelCode, path: Path) -> tuple[str, list[str], bytes]:
    name, symbols, code = _compile(source)
    table = {"name": name, "symbols": symbols, "sha256": digest_of(name, symbols, code)}
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(json.dumps(table).encode() + b"\n" + code)
        os.replace(temporary, path)
    except OSError:  # every process compiles anew then
        with suppress(OSError):  # no folder at all, but a file
            temporary.unlink()
    return name, symbols, code


def _compile(source: KernelCode) -> tuple[str, list[str], bytes]:
    import llvmlite.binding as llvm

    entry = import_module(source.module).entry
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(entry.inspect_llvm())
    outside = [
        value.name
        for value in (*module.functions, *module.global_variables)
        if value.is_declaration and not value.name.startswith("llvm.")
    ]
    return entry.native_name, outside, _machine(llvm).emit_object(module)
