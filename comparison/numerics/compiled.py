"""How functions of compiled code are compiled; imported to compile them, and then alone."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

Function = Callable[..., Any]

# Sums may be taken in any order, and a product and a sum be rounded once.
ANY_ORDER = ("reassoc", "nsz", "contract")


def compiled(*fastmath: str) -> Callable[[Function], Function]:
    """Compile a function on its first call.

    Args:
        fastmath: what the compiler may do beyond the order of operations that is written.
    """

    def compile_function(function: Function) -> Function:
        result: Function = njit(nogil=True, error_model="numpy", fastmath=set(fastmath) or False)(
            function
        )
        return result

    return compile_function


def intrinsic_of(source: Any, target: Any, generate: Function) -> Function:
    """Make a function of one argument out of the instructions that LLVM has.

    Args:
        source: type of the argument.
        target: type of the result.
        generate: is given the builder of instructions and the argument.
    """

    def typed(_context: Any, _value: Any) -> tuple[Any, Function]:
        def build(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return generate(builder, arguments[0])

        return target(source), build

    result: Function = intrinsic(typed)
    return result


float32_of_bits = intrinsic_of(
    types.int32, types.float32, lambda builder, bits: builder.bitcast(bits, ir.FloatType())
)
