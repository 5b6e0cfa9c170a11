"""The rows of Benchmarks/run and their goals: data only. A new row is a line in `all_rows`."""

from dataclasses import dataclass
from itertools import product

import peers

# What the C bound of B1 takes for a PDU, in nanoseconds, on the machine for which the goals in items per second were set.
# It measures how much slower than that one a machine is, in the same moment as the row.
PACE_BOUND, PACE_ID, PACE_NS = "codec", "B1", 13.1


@dataclass(frozen=True)
class Goal:
    """Instructions at most `times` those of the C bound plus `plus`, and the figures that only some rows have."""

    times: float | None = None
    plus: int = 0
    instructions: float | None = None
    # Names of these, where they differ from row to row.
    instructions_are: str | None = None
    allocations: float | None = None
    # Nanoseconds, as a multiple of the C bound's in the same run: absolute times differ from machine to machine.
    ns_times: float | None = None
    round_trips: int | None = None
    # Items per second on the machine of PACE_NS: on a slower one as much less as the C bound is slower there.
    per_second: int | None = None
    # How much more it may cost than the row `smaller`, and for how much more of what.
    growth: float | None = None
    smaller: str | None = None
    growing: str = "at 3,000 attributes"

    def __str__(self):
        parts = []
        if self.times is not None:
            parts.append(f"≤ {self.times:g} × C" + (f" + {self.plus}" if self.plus else ""))
        if self.instructions is not None:
            parts.append(f"at most {self.instructions_are}" if self.instructions_are else f"≤ {self.instructions:,} instructions")
        if self.allocations:
            parts.append(f"≤ {self.allocations} allocations")
        if self.growth is not None:
            parts.append(f"≤ {self.growth:g} × {self.growing}")
        if self.ns_times is not None:
            parts.append(f"≤ {self.ns_times:g} × C's ns")
        if self.per_second is not None:
            parts.append(f"≥ {self.per_second:,}/s where C's B1 takes {PACE_NS} ns")
        return ", ".join(parts)

    def is_slow(self, ns, c_ns=0, pace=1):
        """Whether nanoseconds per item miss the goals that are times; `pace` times slower than the goals' machine is this one."""
        if self.per_second and ns > pace * 1e9 / self.per_second:
            return True
        return self.ns_times is not None and ns > self.ns_times * c_ns

    def misses(self, row, rows):
        """The parts of the goal that the row misses, a sentence each; `rows` are those measured so far, by id."""
        c, instructions = row.get("c_instructions"), row.get("instructions")
        if self.times is not None and instructions > self.times * c + self.plus:
            yield f"{instructions} instructions, the goal is {self.times * c + self.plus:.1f}"
        if self.instructions is not None and instructions > self.instructions:
            yield f"{instructions} instructions, the goal is {self.instructions:g}"
        if self.allocations is not None and row["allocations"] > self.allocations:
            yield f"{row['allocations']} allocations, the goal is {self.allocations:g}"
        if self.ns_times is not None and row["ns"] > self.ns_times * row["c_ns"]:
            yield f"{row['ns']} ns, the goal is {self.ns_times * row['c_ns']:.0f}"
        if self.round_trips is not None and row["round_trips"] > self.round_trips:
            yield f"{row['round_trips']} round trips, the goal is {self.round_trips}"
        if self.per_second is not None and row["per_second"] < self.per_second / row["pace"]:
            yield (
                f"{row['per_second']} per second, the goal is {self.per_second / row['pace']:.0f}: {self.per_second} on a "
                f"machine {row['pace']} times as fast"
            )
        smaller = rows.get(self.smaller)
        if self.growth is not None and smaller and instructions > self.growth * smaller["instructions"]:
            yield f"{instructions} instructions, the goal is {self.growth:g} × {smaller['id']}'s"


@dataclass(frozen=True)
class Row:
    id: str
    bound: str | None  # the C program; None: there is no bound
    repetitions: int  # of a timed batch: some 10 ms
    must: Goal | None = None
    stretch: Goal | None = None
    # Repetitions of a counted run, which is made with these and with three times as many: more if a repetition is a single item.
    counted: int = 1
    # Ours: the product of Benchmarks/Package.swift that does the work.
    program: str = "Bench"
    # The scheduling of threads varies: its counts are not the same on every run.
    has_threshold: bool = True


@dataclass(frozen=True)
class Group:
    title: str
    rows: list[Row]


# NimBLE's instructions per notification, value octets × links: B4.host may cost half of them.
NIMBLE = {
    (20, 1): 1800, (20, 8): 2600, (20, 32): 3400,
    (244, 1): 2100, (244, 8): 2900, (244, 32): 3700,
    (495, 1): 3500, (495, 8): 4200, (495, 32): 5000,
}  # fmt: skip


def codec():
    yield Row("B1", "codec", 100, Goal(times=1.35, allocations=0), Goal(times=1.1, allocations=0))
    yield Row("B2", "codec", 100, Goal(times=1.5, allocations=0), Goal(times=1.2, allocations=0))


def server():
    for attributes, kind in product((300, 3000), range(9)):
        growth = {"growth": 1.3, "smaller": f"B3.K{kind}.300"} if attributes == 3000 else {}
        must = Goal(times=3, plus=400, allocations=0, **growth)
        stretch = Goal(times=2, plus=200, allocations=0, **growth)
        yield Row(f"B3.K{kind}.{attributes}", "server", 1000, must, stretch)


def queue():
    for octets, links in NIMBLE:
        must, stretch = Goal(times=1.6, allocations=0), Goal(times=1.3, allocations=0)
        yield Row(f"B4.queue.{octets}.{links}", "notify", max(400 // links, 10), must, stretch)


def host():
    for (octets, links), nimble in NIMBLE.items():
        half = {"instructions": nimble / 2, "instructions_are": "half of NimBLE's", "allocations": 0}
        must, stretch = Goal(times=4, **half), Goal(times=2, **half)
        yield Row(f"B4.host.{octets}.{links}", "notify", max(100 // links, 3), must, stretch)


def waiting():
    """Values that find no buffer: they go through the queue. In the C bound all do."""
    for way, (octets, links) in product(("queue", "host"), ((20, 1), (244, 1), (244, 8), (495, 8))):
        yield Row(f"x.{way}.{octets}.{links}", "notify", max(100 // links, 10))


def core():
    """Values that arrive."""
    for links in (1, 8, 32):
        yield Row(f"x.core.20.{links}", None, max(100 // links, 3))


def pairing():
    """Both sides of a whole pairing."""
    for way, repetitions in (("legacy", 50), ("sc", 20), ("passkey", 20)):
        yield Row(f"x.pairing.{way}", None, repetitions, counted=2)


def discovery():
    """20 µs, and 10 µs as stretch, on the machine where the C bound took 2.15 µs and 1.77 µs."""
    for mtu, round_trips, c_ns in ((23, 85, 2150), (517, 26, 1770)):
        must = Goal(round_trips=round_trips, ns_times=round(20_000 / c_ns, 1))
        stretch = Goal(round_trips=round_trips, ns_times=round(10_000 / c_ns, 1))
        yield Row(f"B5.{mtu}", "discovery", 500, must, stretch, counted=20)


def capture():
    """A record is an HCI packet; three of four are ACL packets."""
    yield Row("B6.read", "capture", 3, Goal(per_second=10_000_000, allocations=0.01), Goal(per_second=30_000_000, allocations=0.01), counted=3)
    yield Row("B6.fields", None, 3, Goal(per_second=1_000_000, allocations=0.01), Goal(per_second=3_000_000, allocations=0.01), counted=3)
    yield Row("B6.check", None, 3, Goal(per_second=1_000_000), Goal(per_second=3_000_000), counted=3)


def radio():
    yield Row("B7", None, 1, Goal(per_second=500_000), Goal(per_second=1_000_000))


def facade():
    """With threads, by the wall clock: a goal, and no threshold."""
    must = Goal(instructions=9_000, allocations=3, per_second=250_000)
    stretch = Goal(instructions=6_000, allocations=2, per_second=500_000)
    yield Row("B8", None, 1, must, stretch, program="FacadeBench", has_threshold=False)
    # A third of B8's, through two unix sockets.
    must = Goal(instructions=27_000, allocations=9, per_second=83_000)
    stretch = Goal(instructions=18_000, allocations=6, per_second=167_000)
    yield Row("B8.daemon", None, 1, must, stretch, program="FacadeBench", has_threshold=False)


def reading():
    yield from (Row(id, None, 1, program="FacadeBench", has_threshold=False) for id in ("x.read", "x.read.daemon"))


def receiving():
    """Packets to the observer, in batches of 8 packets."""
    for links in (1, 8, 32):
        growth = {"growth": 1.3, "smaller": "B9.1", "growing": "at 32 links"} if links > 1 else {}
        must, stretch = Goal(times=4, allocations=0, **growth), Goal(times=2, allocations=0, **growth)
        # Enough values that one allocation more or less at the start is negligible for each.
        yield Row(f"B9.{links}", "receive", max(200 // links, 6), must, stretch, counted=max(10 // links, 1))


def scanning():
    """1.5 µs, and no more for bonds and requests than a few look-ups."""
    goal, stretch = {"per_second": 667_000}, {"per_second": 1_250_000}
    yield Row("B10.plain", None, 20, Goal(**goal), Goal(**stretch))
    growth = {"growth": 1.3, "smaller": "B10.plain", "growing": "with 128 bonds and 1,000 requests"}
    yield Row("B10.all", None, 20, Goal(**goal, **growth), Goal(**stretch, **growth), counted=3)


def streaming():
    """SDUs of 2,000 octets. The C bound has neither links nor turns nor phases of a channel."""
    must, stretch = Goal(times=7, allocations=0), Goal(times=2, allocations=0)
    for way, mps in product(("down", "up"), (247, 1024)):
        yield Row(f"B11.{way}.{mps}", "stream", 20, must, stretch)


GROUPS = [
    Group("B1, B2  the ATT codec, per PDU: decode and visit every field; encode", list(codec())),
    Group("B3  server, per request at MTU 247: bearer, server, database; .300 and .3000 attributes", list(server())),
    Group("B4.queue  value → ACL packets, per notification: .octets.links", list(queue())),
    Group("B4.host  the API's call → ACL packets, per notification: .octets.links", list(host())),
    Group("B5  discovery of the 300-attribute server, per discovery: .MTU", list(discovery())),
    Group("B6  a btsnoop file → ATT, per record: every field visited; as tab-separated text; judged by the rules", list(capture())),
    Group("B7  one host to another over the simulated radio, per notification of 244 octets", list(radio())),
    Group("B8  CBPeripheralManager to CBPeripheralDelegate, on that radio in real time, per notification of 244 octets; .daemon", list(facade())),
    Group("B9  ACL packets → the host's observer, per notification of 244 octets: .links", list(receiving())),
    Group("B10  a report of a scan → the host's effect; .plain, and .all with 128 bonds and 1,000 requests to connect", list(scanning())),
    Group("B11  a credit-based channel, per SDU of 2,000 octets: the API's call → ACL packets; ACL packets → the effect: .way.MPS", list(streaming())),
    Group("x.queue, x.host  as B4, for values that wait for a buffer: .octets.links", list(waiting())),
    Group("x.core  a value that arrives → effect, packets and deadline asked for, per value: .octets.links", list(core())),
    Group("x.read  a read of 244 octets, from CBPeripheral to its delegate, one at a time: in one process, and through bindruned", list(reading())),
    Group("x.pairing  both sides of a pairing with its keys: .way", list(pairing())),
    Group("x  beside the goals: the loop around B1 and B2", [Row("x.loop", "codec", 100)]),
]
# What peers.py measures, where they are installed.
PEERS = ["x.B7.Host", *peers.LINKS, "x.bumble.decode", *(f"x.bumble.server.K{kind}" for kind in range(9)), "x.tshark"]
