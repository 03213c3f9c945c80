"""Median times of calls, the memory that they take, and what the chip can do at most."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

FLUSH_BYTES = 256 << 20  # several times the L2 of any GPU
# 25 to 100 ms after large problems begin, depending on where its control loop is, an H200 finds that they take more
# power than its limit and lowers the clock, by 3 to 15 %. So a measurement is over 25 ms after it began; a median of 25
# to 125 ms after, as that of triton.testing.do_bench, has either clock by chance.
WARM_UP_SECONDS, SECONDS = 0.005, 0.02
# The better one counts: the other one may have met a clock that was still rising, or a limit set before.
GOES = 2
REST_SECONDS = 0.2  # before each, so that what ran just before does not decide at which clock it starts
# Under load: the second half counts.
LOAD_SECONDS = 0.6
WARM_UP, FEWEST, MOST = 1, 3, 100
CPU_SECONDS, CPU_FEWEST = 0.03, 5

Call = Callable[[int], Any]  # runs on one set of inputs, given by its number


class Ceilings(NamedTuple):
    tflops: float | None  # of a float16 8192^3 product through cuBLAS
    gbps: float | None  # of a device copy, bytes read and written


class Timer:
    """Holds the buffer that flushes the L2; only made where there is a GPU."""

    def __init__(self, device: str) -> None:
        self._device = device
        if device == "cuda":
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
            self._flush_milliseconds = min(self._once(lambda _: self._flush.zero_(), 0) for _ in range(3))

    def milliseconds(self, call: Call, num_sets: int = 1, calls_in_graph: int = 0) -> float:
        """Median of one call at full clock; each repeat has another set of inputs and starts with a flushed L2.

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
        times = self._times(call, num_sets, max(FEWEST, self._repeats(LOAD_SECONDS, self._once(call, 0))))
        return statistics.median(times[len(times) // 2 :])

    def _repeated(self, call: Call, num_sets: int) -> float:
        first = self._once(call, 0)
        second = self._once(call, 1 % num_sets)  # the first may compile
        milliseconds = min(first, second)
        warm_up = min(MOST, max(WARM_UP, self._repeats(WARM_UP_SECONDS, milliseconds)))
        repeats = min(MOST, max(FEWEST, self._repeats(SECONDS, milliseconds)))
        goes = 1 if second > 100 else GOES
        return min(statistics.median(self._times(call, num_sets, warm_up + repeats)[warm_up:]) for _ in range(goes))

    def _repeats(self, seconds: float, milliseconds: float) -> int:
        return int(1e3 * seconds / (milliseconds + self._flush_milliseconds))

    def _times(self, call: Call, num_sets: int, repeats: int) -> list[float]:
        """Of calls one behind the other, after a rest."""
        torch.cuda.synchronize()
        time.sleep(REST_SECONDS)
        events = [self._enqueue(call, index % num_sets) for index in range(repeats)]
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]

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
        while len(times) < CPU_FEWEST or (sum(times) < CPU_SECONDS and len(times) < MOST):
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


def _captured(call: Call, num_sets: int, calls: int) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for index in range(num_sets):
            call(index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(calls):
            call(index % num_sets)
    return graph.replay
