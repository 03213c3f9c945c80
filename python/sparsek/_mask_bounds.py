"""What a mask_mod says of whole blocks, without a look at their pairs: interval arithmetic.

The mask_mod is called once, with tensors that stand for the least and the greatest index in each block. Every operation
on them gives bounds of its result, so that a block whose result is bounded by True from below is full, and one bounded
by False from above is empty; of the others nothing is known. An operation without a rule here ends the attempt.

Source: interval analysis, R. E. Moore, Interval Analysis, 1966; the minimum of a stretch of a table is found as in
Bender and Farach-Colton, The LCA Problem Revisited, 2000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


class Unknown(Exception):
    """No rule says how to bound the result."""


class Bounds(Tensor):
    """A tensor of which only bounds are known: low <= value <= high, for bool low is "must" and high is "may"."""

    low: Tensor
    high: Tensor

    @staticmethod
    def __new__(cls, low: Tensor, high: Tensor) -> Bounds:
        return Tensor._make_wrapper_subclass(cls, low.shape, dtype=low.dtype, device=low.device)

    def __init__(self, low: Tensor, high: Tensor) -> None:
        self.low, self.high = low, high

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        rule = _RULES.get(function.overloadpacket)
        if rule is None:
            raise Unknown(str(function))
        return rule(*args, **(kwargs or {}))


def of_blocks(
    mask_mod: Callable[..., Any], batch: Tensor, head: Tensor, queries: Bounds, keys: Bounds
) -> tuple[Tensor, Tensor] | None:
    """(must, may), bool (q blocks, kv blocks): full blocks, and those that are not empty; None where nothing is known.

    `queries` is (q blocks, 1) and `keys` (1, kv blocks).
    """
    shape = (queries.shape[0], keys.shape[1])
    try:
        result = mask_mod(batch, head, queries, keys)
        if isinstance(result, bool):
            result = torch.tensor(result, device=queries.device)
        low, high = _both(result)
        if low.dtype != torch.bool:
            return None
        return low.expand(shape), high.expand(shape)
    except Exception:  # whatever a mask_mod may do to its arguments; it then meets real ones, and may fail on those
        return None


def _both(x: Any) -> tuple[Any, Any]:
    if isinstance(x, Bounds):
        return x.low, x.high
    if isinstance(x, Tensor) and x.numel() != 1:
        raise Unknown("a tensor of more than one element beside the indices")
    return x, x


def _monotone(function: Callable[..., Tensor]) -> Callable[..., Bounds]:
    """A function that does not decrease in any of its tensors."""

    def rule(*args: Any, **kwargs: Any) -> Bounds:
        lows, highs = zip(*(_both(x) for x in args), strict=True)
        return Bounds(function(*lows, **kwargs), function(*highs, **kwargs))

    return rule


def _check(known: bool) -> None:
    if not known:
        raise Unknown("arguments without a rule")


def _check_range(function: Callable[[float, float], float], a: Any, b: Any) -> None:
    """Integers that wrap are in no order: raises Unknown where the result might."""

    def reach(x: Any) -> float:
        bounds = [torch.as_tensor(bound) for bound in _both(x)]
        _check(all(bound.dtype != torch.bool for bound in bounds))
        return max(float(bound.double().abs().max()) if bound.numel() else 0.0 for bound in bounds)

    dtype = torch.result_type(*(x.low if isinstance(x, Bounds) else x for x in (a, b)))
    if not dtype.is_floating_point:
        _check(function(reach(a), reach(b)) < min(torch.iinfo(dtype).max, 2**53))


def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Bounds:
    _check(alpha == 1)
    _check_range(float.__add__, a, b)
    (a_low, a_high), (b_low, b_high) = _both(a), _both(b)
    return Bounds(a_low - b_high, a_high - b_low)


def _add(a: Any, b: Any, *, alpha: Any = 1) -> Bounds:
    _check(alpha == 1)
    _check_range(float.__add__, a, b)
    return _monotone(aten.add)(a, b)


def _mul(a: Any, b: Any) -> Bounds:
    _check_range(float.__mul__, a, b)
    products = [x * y for x in _both(a) for y in _both(b)]
    low = torch.minimum(torch.minimum(*products[:2]), torch.minimum(*products[2:]))
    return Bounds(low, torch.maximum(torch.maximum(*products[:2]), torch.maximum(*products[2:])))


def _abs(x: Bounds) -> Bounds:
    low = torch.maximum(torch.maximum(x.low, -x.high), torch.zeros_like(x.low))
    return Bounds(low, torch.maximum(x.low.abs(), x.high.abs()))


def _positive(number: Any) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and number > 0


def _floor_divide(a: Any, b: Any) -> Bounds:
    _check(_positive(b))
    return Bounds(a.low // b, a.high // b)


def _div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Bounds:
    _check(_positive(b))
    return Bounds(*(torch.div(x, b, rounding_mode=rounding_mode) for x in (a.low, a.high)))


def _remainder(a: Any, b: Any) -> Bounds:
    _check(_positive(b) and isinstance(b, int) and isinstance(a, Bounds) and not a.dtype.is_floating_point)
    same = a.low // b == a.high // b
    return Bounds(torch.where(same, a.low % b, 0), torch.where(same, a.high % b, b - 1))


def _right_shift(a: Any, b: Any) -> Bounds:
    _check(isinstance(a, Bounds) and _positive(b))
    return Bounds(a.low >> b, a.high >> b)


def _less(a: Any, b: Any) -> Bounds:
    (a_low, a_high), (b_low, b_high) = _both(a), _both(b)
    return Bounds(a_high < b_low, a_low < b_high)


def _not(x: Bounds) -> Bounds:
    _check(x.dtype == torch.bool)
    return Bounds(~x.high, ~x.low)


def _equal(a: Any, b: Any) -> Bounds:
    (a_low, a_high), (b_low, b_high) = _both(a), _both(b)
    must = (a_low == b_high) & (a_high == b_low)  # then all four are the same
    return Bounds(must, (a_low <= b_high) & (b_low <= a_high))


def _of_bool(rule: Callable[..., Bounds]) -> Callable[..., Bounds]:
    def checked(a: Any, b: Any) -> Bounds:
        for x in (a, b):
            _check(isinstance(x, bool) or (isinstance(x, Tensor) and x.dtype == torch.bool))
        return rule(a, b)

    return checked


def _where(condition: Any, a: Any, b: Any) -> Bounds:
    (must, may), (a_low, a_high), (b_low, b_high) = _both(condition), _both(a), _both(b)
    a_low, a_high, b_low, b_high = (torch.as_tensor(x, device=must.device) for x in (a_low, a_high, b_low, b_high))
    low = torch.where(must, a_low, torch.where(may, torch.minimum(a_low, b_low), b_low))
    return Bounds(low, torch.where(must, a_high, torch.where(may, torch.maximum(a_high, b_high), b_high)))


def _clamp(x: Any, least: Any = None, most: Any = None) -> Bounds:
    _check(isinstance(x, Bounds) and not isinstance(least, Bounds) and not isinstance(most, Bounds))
    return Bounds(x.low.clamp(_both(least)[0], most), x.high.clamp(least, _both(most)[0]))


def _to(x: Bounds, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Bounds:
    _check(set(kwargs) <= {"layout", "device", "pin_memory", "non_blocking", "memory_format"})
    device = kwargs.get("device")
    _check(device is None or torch.device(device) == x.device)
    if dtype == torch.bool and x.dtype != torch.bool:
        return _not(_equal(x, 0))
    # Narrow integers wrap, and then are in no order.
    _check(dtype in (None, x.dtype, torch.int64, torch.float32, torch.float64) or x.dtype == torch.bool)
    return Bounds(x.low.to(dtype or x.dtype), x.high.to(dtype or x.dtype))


def _isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Bounds:
    _check(isinstance(elements, Bounds) and not elements.dtype.is_floating_point)
    _check(not isinstance(test_elements, Bounds) and not test_elements.dtype.is_floating_point)
    members = torch.unique(test_elements).to(elements.dtype)
    end = torch.searchsorted(members, elements.high.contiguous(), right=True)
    inside = end - torch.searchsorted(members, elements.low.contiguous())
    result = Bounds(inside == elements.high - elements.low + 1, inside > 0)
    return _not(result) if invert else result


def _index(table: Any, indices: list[Any]) -> Bounds:
    """table[i, ..., x, ...]: one index with bounds, the others of one element."""
    _check(not isinstance(table, Bounds) and not table.dtype.is_floating_point and table.ndim == len(indices))
    axis, bounds = 0, None
    for index in indices:
        if isinstance(index, Bounds):
            _check(bounds is None and index.dtype == torch.int64)
            bounds, axis = index, 1
            continue
        _check(index is not None and index.numel() == 1 and index.dtype != torch.bool)
        table = table.index_select(axis, index.reshape(1).to(table.device)).squeeze(axis)
    _check(bounds is not None and bounds.numel() > 0)
    # Negative ones wrap around.
    _check(int(bounds.low.min()) >= 0 and int(bounds.high.max()) < len(table))
    return Bounds(*_extremes(table, bounds.low.to(table.device), bounds.high.to(table.device)))


def _extremes(table: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest of table[low] ... table[high], elementwise."""
    dtype = table.dtype
    table = table.to(torch.uint8) if dtype == torch.bool else table
    level = torch.frexp((high - low + 1).double()).exponent.long() - 1  # two stretches of 2^level cover each
    results = []
    for extreme in (torch.minimum, torch.maximum):
        rows = [table]  # rows[k][i]: that of table[i] ... table[i + 2^k - 1]
        for k in range(int(level.max())):
            row = rows[-1]
            rows.append(torch.cat([extreme(row[: -(1 << k)], row[1 << k :]), row[-(1 << k) :]]))
        stacked = torch.stack(rows)
        results.append(extreme(stacked[level, low], stacked[level, high + 1 - (1 << level)]).to(dtype))
    return results[0], results[1]


def _new(name: str) -> Callable[..., Tensor]:
    return lambda x, *args, **kwargs: getattr(x.low, name)(*args, **kwargs)


_RULES: dict[Any, Callable[..., Any]] = {
    aten.add: _add,
    aten.sub: _sub,
    aten.rsub: lambda a, b, alpha=1: _sub(b, a, alpha=alpha),
    aten.mul: _mul,
    aten.neg: lambda x: _sub(0, x),
    aten.abs: _abs,
    aten.floor_divide: _floor_divide,
    aten.div: _div,
    aten.remainder: _remainder,
    aten.__rshift__: _right_shift,
    aten.bitwise_right_shift: _right_shift,
    aten.minimum: _monotone(aten.minimum),
    aten.maximum: _monotone(aten.maximum),
    aten.clamp: _clamp,
    aten.floor: _monotone(aten.floor),
    aten.lt: _less,
    aten.gt: lambda a, b: _less(b, a),
    aten.ge: lambda a, b: _not(_less(a, b)),
    aten.le: lambda a, b: _not(_less(b, a)),
    aten.eq: _equal,
    aten.ne: lambda a, b: _not(_equal(a, b)),
    aten.where: _where,
    aten.isin: _isin,
    aten.index: _index,
    aten._to_copy: _to,
    aten.bitwise_not: _not,
    aten.logical_not: _not,
    aten.new_ones: _new("new_ones"),
    aten.new_zeros: _new("new_zeros"),
    aten.new_full: _new("new_full"),
    **dict.fromkeys((aten.detach, aten.alias, aten.clone), lambda x, **kwargs: Bounds(x.low, x.high)),
    **dict.fromkeys((aten.bitwise_and, aten.logical_and, aten.__and__), _of_bool(_monotone(aten.logical_and))),
    **dict.fromkeys((aten.bitwise_or, aten.logical_or, aten.__or__), _of_bool(_monotone(aten.logical_or))),
    **dict.fromkeys((aten.bitwise_xor, aten.logical_xor, aten.__xor__), _of_bool(lambda a, b: _not(_equal(a, b)))),
}
