"""The few machine operations that LLVM does not find by itself in a compiled loop.

Each function emits portable LLVM instructions (vectors of four doubles, which every target has or can imitate), so
that the inner loops do not hang on what an optimiser proves about aliasing. Arrays are C-contiguous and one-
dimensional, positions count elements, nothing is checked: these are for kernels, not for callers. A `panel` is a
tuple of whatever numbers, of which only the length counts: that many vectors make a row. It is how a compiled
function can be made for one length of row and still be a plain, cached function.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from foldaway.numerics.kernels.compiling import intrinsic

LANES = 4  # doubles in a vector: no row of a 32-byte aligned array then straddles a cache line
GROUPS = 8  # tables that `add_entries` reads in one pass over a row of sums

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_WORD = ir.IntType(64)


@intrinsic
def load_word(typing: Any, octets: Any, at: Any) -> Any:
    """The little-endian 64-bit word that starts at any octet of a uint8 array."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.gep(_data(context, builder, signature, args, 0), [args[1]])
        return builder.load(builder.bitcast(pointer, _WORD.as_pointer()), align=1)

    return types.uint64(octets, at), emit


@intrinsic
def trailing_zeros(typing: Any, word: Any) -> Any:
    """The position of the lowest set bit of a uint64 (64 if none is set)."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), emit


@intrinsic
def sip_rounds(typing: Any, state: Any, count: Any) -> Any:
    """SipHash's round, so many times (a constant), on a state of four words.

    As instructions it takes a tenth of the time to compile that it takes as Python.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = [builder.extract_value(args[0], i) for i in range(4)]

        def mix(a: int, b: int, by: int) -> None:
            v[a] = builder.add(v[a], v[b])
            v[b] = builder.xor(turned(v[b], by), v[a])

        def turned(word: Any, by: int) -> Any:
            return builder.or_(builder.shl(word, _WORD(by)), builder.lshr(word, _WORD(64 - by)))

        for _ in range(count.literal_value):
            mix(0, 1, 13)
            mix(2, 3, 16)
            v[0] = turned(v[0], 32)
            mix(2, 1, 17)
            mix(0, 3, 21)
            v[2] = turned(v[2], 32)
        return context.make_tuple(builder, signature.return_type, v)

    words: Any = types.UniTuple
    return words(types.uint64, 4)(state, count), emit


@intrinsic
def count_bits(typing: Any, word: Any) -> Any:
    """How many bits of a uint64 are set."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), emit


@intrinsic
def gather_bits(typing: Any, words: Any, rows: Any, codes: Any, at: Any) -> Any:
    """Gather the bits of `rows` (a constant) times eight words into the octets of sixty-four.

    Bit 8j + s of word 8r + g becomes bit r of octet j of the word `codes[at + 8s + g]`.
    """
    signature = types.void(words, rows, codes, at)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(_WORD, GROUPS)
        source = _data(context, builder, signature, args, 0)
        to = builder.gep(_data(context, builder, signature, args, 2), [args[3]])

        def place(row: Any, number: int) -> Any:
            return builder.bitcast(builder.gep(row, [_WORD(GROUPS * number)]), vector.as_pointer())

        def splat(value: int) -> Any:
            return ir.Constant(vector, [value] * GROUPS)

        picked = [builder.load(place(source, row), align=8) for row in range(rows.literal_value)]
        for shift in range(8):
            code = splat(0)
            for row, word in enumerate(picked):
                bits = builder.and_(builder.lshr(word, splat(shift)), splat(0x0101010101010101))
                code = builder.or_(code, builder.shl(bits, splat(row)))
            builder.store(code, place(to, shift), align=8)
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def add_scaled(
    typing: Any, out: Any, out_at: Any, base: Any, base_at: Any, scale: Any, row: Any, row_at: Any, panel: Any
) -> Any:
    """Write `base[base_at:] + scale * row[row_at:]` to `out[out_at:]`, a panel's row of each."""
    signature = types.void(out, out_at, base, base_at, scale, row, row_at, panel)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = builder.gep(_data(context, builder, signature, args, 0), [args[1]])
        start = builder.gep(_data(context, builder, signature, args, 2), [args[3]])
        source = builder.gep(_data(context, builder, signature, args, 5), [args[6]])
        factor = ir.Constant(_VECTOR, ir.Undefined)
        for lane in range(LANES):
            factor = builder.insert_element(factor, args[4], ir.IntType(32)(lane))
        for column in range(0, LANES * len(panel), LANES):
            term = builder.fmul(factor, _load(builder, source, column), flags=("contract",))
            total = builder.fadd(_load(builder, start, column), term, flags=("contract",))
            builder.store(total, _vector(builder, to, column), align=8)
        return context.get_dummy_value()

    return signature, emit


@intrinsic
def add_entries(
    typing: Any, sums: Any, sums_at: Any, tables: Any, codes: Any, codes_at: Any, entries: Any, panel: Any
) -> Any:
    """Add to one row of sums the entry of each of eight tables that its code names.

    The tables lie one after another, `entries` (a constant) rows each; the code for table g is the octet
    `codes[codes_at + 8 * g]`.
    """
    signature = types.void(sums, sums_at, tables, codes, codes_at, entries, panel)

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = builder.gep(_data(context, builder, signature, args, 0), [args[1]])
        table = _data(context, builder, signature, args, 2)
        code = builder.gep(_data(context, builder, signature, args, 3), [args[4]])
        size = LANES * len(panel)
        columns = range(0, size, LANES)
        totals = [_load(builder, to, column) for column in columns]
        for group in range(GROUPS):
            chosen = builder.zext(builder.load(builder.gep(code, [_WORD(8 * group)])), _WORD)
            start = builder.add(builder.mul(chosen, _WORD(size)), _WORD(group * entries.literal_value * size))
            entry = builder.gep(table, [start])
            totals = [
                builder.fadd(total, _load(builder, entry, column))
                for total, column in zip(totals, columns, strict=True)
            ]
        for total, column in zip(totals, columns, strict=True):
            builder.store(total, _vector(builder, to, column), align=8)
        return context.get_dummy_value()

    return signature, emit


def _data(context: Any, builder: Any, signature: Any, args: Any, position: int) -> Any:
    return context.make_array(signature.args[position])(context, builder, args[position]).data


def _vector(builder: Any, row: Any, column: int) -> Any:
    return builder.bitcast(builder.gep(row, [_WORD(column)]), _VECTOR.as_pointer())


def _load(builder: Any, row: Any, column: int) -> Any:
    return builder.load(_vector(builder, row, column), align=8)
