"""Median times of calls, the memory that they take, and what the chip can do at most."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

FLUSH_BYTES = 256 << 20  # several times the L2 of any GPU
# To spend on warming up, and on the repeats of one measurement. 60 to 90 ms after large problems begin, an H200 reaches
# the limit of its power and lowers its clock, by 3 to 15 %. A median of 25 to 125 ms after, as that of
# triton.testing.do_bench, has either clock by chance.
WARM_UP_SECONDS, SECONDS = 0.025, 0.03
# Under load: the second half counts. Then the GPU rests, lest the next measurement begins with less power to spend.
LOAD_SECONDS, REST_AFTER_LOAD_SECONDS = 0.6, 1.0
# Before each measurement the GPU rests, so that what ran just before does not decide at which clock it starts.
REST_SECONDS = 0.25
WARM_UP, FEWEST, MOST = 3, 5, 100

Call = Callable[[int], Any]  # runs on one set of inputs, given by its number


class Ceilings(NamedTuple):
    tflops: float | None  # of a float16 8192^3 product through cuBLAS
    gbps: float | None  # of a device copy, bytes read and written


class Timer:
    """Holds the buffer that flushes the L2; only made where there is a GPU."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device) if device == "cuda" else None

    def milliseconds(self, call: Call, num_sets: int = 1, calls_in_graph: int = 0) -> float:
        """Median of one call; each repeat has another set of inputs and starts with a flushed L2.

        calls_in_graph  if not 0, a CUDA graph of so many calls is replayed, each on another set; still of one call
        """
        if self._device == "cpu":
            return self._cpu_milliseconds(call)
        if calls_in_graph:
            replay = _captured(call, num_sets, calls_in_graph)
            return self._repeated(lambda _: replay(), 1) / calls_in_graph
        return self._repeated(call, num_sets)

    def milliseconds_under_load(self, call: Call, num_sets: int = 1) -> float:
        """The same when calls have followed each other for so long that the power limit has set the clock."""
        milliseconds = max(self._once(call, 0), 1e-3)
        repeats = max(FEWEST, int(1e3 * LOAD_SECONDS / milliseconds))
        events = [self._enqueue(call, index % num_sets) for index in range(repeats)]
        torch.cuda.synchronize()
        time.sleep(REST_AFTER_LOAD_SECONDS)
        return _median(events[repeats // 2 :])

    def _repeated(self, call: Call, num_sets: int) -> float:
        torch.cuda.synchronize()
        time.sleep(REST_SECONDS)
        first = self._once(call, 0)
        second = self._once(call, 1 % num_sets)  # the first may compile
        slow = second > 100
        milliseconds = max(min(first, second), 1e-3)
        for index in range(0 if slow else min(MOST, max(WARM_UP - 2, int(1e3 * WARM_UP_SECONDS / milliseconds)))):
            self._enqueue(call, index % num_sets)
        repeats = 3 if slow else min(MOST, max(FEWEST, int(1e3 * SECONDS / milliseconds)))
        events = [self._enqueue(call, index % num_sets) for index in range(repeats)]
        torch.cuda.synchronize()
        return _median(events)

    def _once(self, call: Call, index: int) -> float:
        start, end = self._enqueue(call, index)
        end.synchronize()
        return start.elapsed_time(end)

    def _enqueue(self, call: Call, index: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()  # takes long enough for the host to be ahead of the GPU
        start.record()
        call(index)
        end.record()
        return start, end

    def _cpu_milliseconds(self, call: Call) -> float:
        call(0)
        times: list[float] = []
        while len(times) < FEWEST or (sum(times) < SECONDS and len(times) < MOST):
            begin = time.perf_counter()
            call(0)
            times.append(time.perf_counter() - begin)
        return 1e3 * statistics.median(times)

    def extra_bytes(self, call: Call) -> int | None:
        """Peak bytes of PyTorch's allocator during a call, beyond inputs and output; None on a CPU."""
        if self._device == "cpu":
            return None
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        out = call(0)
        torch.cuda.synchronize()
        values = getattr(out, "values", None)  # of a BSRMatrix; a method of a tensor
        size = out.nbytes if isinstance(out, torch.Tensor) else values.nbytes
        return max(0, torch.cuda.max_memory_allocated() - before - size)

    def ceilings(self) -> Ceilings:
        """Measured now, as the other figures are; None on a CPU."""
        if self._device == "cpu":
            return Ceilings(None, None)
        n = 8192
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
        product = min(self.milliseconds(lambda _: torch.matmul(a, b)) for _ in range(4))  # the first wakes the clocks
        source = torch.empty(1 << 30, dtype=torch.int8, device="cuda").random_()
        target = torch.empty_like(source)
        copy = self.milliseconds(lambda _: target.copy_(source))
        return Ceilings(2 * n**3 / product / 1e9, 2 * source.nbytes / copy / 1e6)


def _median(events: list[tuple[torch.cuda.Event, torch.cuda.Event]]) -> float:
    return statistics.median(start.elapsed_time(end) for start, end in events)


def _captured(call: Call, num_sets: int, calls: int) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for index in range(WARM_UP):
            call(index % num_sets)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(calls):
            call(index % num_sets)
    return graph.replay
