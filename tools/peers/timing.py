"""Times contestants beside each other, by the protocol of docs/measuring.md."""

import statistics
import time
from dataclasses import dataclass, field

import torch

FLUSH_BYTES = 256 << 20
COOL_PAUSE_SECONDS = 0.025
WARM_UP = 3
REGIMES = ("cool", "hot")


class DeviceLost(RuntimeError):
    """The CUDA context is unusable: nothing can be measured in this process any more."""


def check_device():
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise DeviceLost(str(error)) from error


@dataclass
class Samples:
    """Of one contestant, in order. `late`: the host had not enqueued all before the spin kernel ended, so
    that its own time may be in the figure."""

    milliseconds: list = field(default_factory=list)
    sm_clock_mhz: list = field(default_factory=list)
    power_watts: list = field(default_factory=list)
    late: list = field(default_factory=list)
    error: str | None = None

    def good(self):
        return [ms for ms, late in zip(self.milliseconds, self.late) if not late]

    def median(self):
        good = self.good()
        return statistics.median(good) if good else None


class Timer:
    """Everything is enqueued on the current stream. `clocks` gives (SM clock, power)."""

    def __init__(self, clocks, spin_milliseconds):
        self._clocks = clocks
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self._spin_cycles = self._cycles_of(spin_milliseconds)

    @staticmethod
    def _cycles_of(milliseconds):
        """The clock varies by a quarter at most, which the length leaves room for."""
        cycles = 10_000_000
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(cycles)
        start.record()
        torch.cuda._sleep(cycles)
        stop.record()
        stop.synchronize()
        return int(cycles * milliseconds / start.elapsed_time(stop))

    def _enqueue(self, contestant):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        torch.cuda._sleep(self._spin_cycles)
        start.record()
        contestant.run()
        stop.record()
        return contestant, start, stop, start.query()

    def _collect(self, enqueued, samples):
        contestant, start, stop, late = enqueued
        start.synchronize()
        # While the work runs: reading clocks delays nothing that is timed.
        clock, power = self._clocks()
        stop.synchronize()
        of_contestant = samples[contestant.name]
        of_contestant.milliseconds.append(start.elapsed_time(stop))
        of_contestant.sm_clock_mhz.append(clock)
        of_contestant.power_watts.append(power)
        of_contestant.late.append(late)

    def warm_up(self, contestant):
        for _ in range(WARM_UP):
            contestant.run()
        check_device()

    def time_interleaved(self, contestants, repeats, regime):
        """Samples by name. Every other repetition goes through the contestants backwards, so that none
        always follows the same one. In the hot regime one piece of work is always enqueued ahead, so that
        the GPU never waits for the host."""
        samples = {contestant.name: Samples() for contestant in contestants}
        taking_part = list(contestants)
        ahead = None
        for repeat in range(repeats):
            for contestant in taking_part[:: -1 if repeat % 2 else 1]:
                if regime == "cool":
                    time.sleep(COOL_PAUSE_SECONDS)
                try:
                    enqueued = self._enqueue(contestant)
                except RuntimeError as error:
                    samples[contestant.name].error = str(error)
                    taking_part.remove(contestant)
                    check_device()
                    continue
                if ahead:
                    self._collect(ahead, samples)
                ahead = enqueued
                if regime == "cool":
                    self._collect(ahead, samples)
                    ahead = None
        if ahead:
            self._collect(ahead, samples)
        check_device()
        return samples
