#!/usr/bin/env python3
"""Measures what Benchmarks/run has built, and holds it to goals (rows.py) and thresholds (Thresholds/*.json).

A row is measured by a program of ours, Bench or FacadeBench, and by a C bound; both take `ID WORKLOADS REPETITIONS BATCHES` and print
`ID ns MEDIAN check SUM items N`, and behind it further `name value` pairs. The two sums must be equal: both did the same
work. Rows that begin with `x.` are figures beside the goals.
"""

import argparse
import json
import os
import re
import statistics
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import peers
import readme
from rows import GROUPS, PACE_BOUND, PACE_ID, PACE_NS, PEERS

SHORT_PDUS = 1000
# A figure may be this much over its threshold: compilers move a little.
TOLERANCE = 1.05
# A time that misses its goal is measured this often in all: disturbances can only make it longer.
TIMED_AT_MOST = 5
# Swift seeds its hash tables at random, and then no two runs have the same counts.
ENVIRONMENT = {**os.environ, "SWIFT_DETERMINISTIC_HASHING": "1"}


class Failure(Exception):
    """A sentence for the user."""


class Program:
    """One side of a row: Bench or the C bound."""

    def __init__(self, path, id, workloads):
        self.path, self.id, self.workloads = str(path), id, str(workloads)

    def run(self, repetitions, batches=1, before=(), **environment):
        """What it printed, by name, and its standard error."""
        command = [*before, self.path, self.id, self.workloads, str(repetitions), str(batches)]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env={**ENVIRONMENT, **environment}
        )
        line = re.search(rf"^{re.escape(self.id)}((?: \w+ [\d.]+)+)$", done.stdout, re.MULTILINE)
        if done.returncode != 0 or not line:
            said = f"{done.stdout[-300:]}{done.stderr[-700:]}".strip()
            raise Failure(f"{self.id} cannot be measured: `{' '.join(command)}` ended with {done.returncode}: {said}")
        words = line[1].split()
        return dict(zip(words[::2], words[1::2])), done.stderr

    def counted(self, pattern, repetitions, **how):
        found = re.search(pattern, self.run(repetitions, **how)[1])
        if not found:
            raise Failure(f"{self.id}: nothing was counted in {self.path}")
        return int(found[1])

    def instructions(self, repetitions):
        tool = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
        return self.counted(r"Collected\s*:\s*(\d+)", repetitions, before=tool)

    def allocations(self, repetitions):
        counter = Path(self.path).parent / "allocations.so"
        return self.counted(r"ALLOCATIONS (\d+)", repetitions, LD_PRELOAD=str(counter))


def rounded(value, digits):
    """As few digits as it needs: 0, not 0.0."""
    value = round(value, digits)
    return int(value) if value == int(value) else value


class Measurement:
    """Measures all rows: in the full form, or in the short one for a check, with 1,000 PDUs and one round of times."""

    def __init__(self, work, is_short):
        self.work, self.rounds, self.batches = work, 1 if is_short else 3, 5 if is_short else 9
        self.workloads = short_workloads(work / "workloads") if is_short else work / "workloads"

    def pace(self):
        """How many times slower than the machine of the goals this one is at the moment; a faster one counts as that one."""
        bound = Program(self.work / PACE_BOUND, PACE_ID, self.work / "workloads")
        return max(float(bound.run(100, self.batches)[0]["ns"]) / PACE_NS, 1)

    def row(self, row):
        ours = Program(self.work / row.program, row.id, self.workloads)
        bound = Program(self.work / row.bound, row.id, self.workloads) if row.bound else None
        printed = ours.run(1)[0]
        items = int(printed["items"])
        pair = [ours, bound] if bound else [ours]
        if bound:
            expected = bound.run(1)[0]
            if printed["check"] != expected["check"] or printed["items"] != expected["items"]:
                raise Failure(
                    f"{row.id}: ours adds up to {printed['check']} over {printed['items']} items, the C bound to "
                    f"{expected['check']} over {expected['items']}: not the same work"
                )
        # Other processes do not change counts: all of a row's runs at once, on all cores.
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            # The cost of additional repetitions: start-up drops out.
            def slope(count):
                few, many = pool.submit(count, row.counted), pool.submit(count, 3 * row.counted)
                return lambda: (many.result() - few.result()) / (2 * row.counted) / items

            instructions = [slope(program.instructions) for program in pair]
            allocations = slope(ours.allocations)
            figures = {"id": row.id, "instructions": rounded(instructions[0](), 1)}
            if bound:
                figures["c_instructions"] = rounded(instructions[1](), 1)
            figures["allocations"] = rounded(allocations(), 3)
        # They change times: ours, the bound and what measures the machine's pace run alone and in turns, so that a slow
        # moment of the machine affects all.
        has_rate = row.must and row.must.per_second
        times = []

        def another_round():
            ns, *c_ns = [float(p.run(row.repetitions, self.batches)[0]["ns"]) for p in pair]
            times.append((ns, c_ns[0] if bound else 0, self.pace() if has_rate else 1))

        for _ in range(self.rounds):
            another_round()
        best, c_ns, pace = (statistics.median(each) for each in zip(*times))
        while row.must and row.must.is_slow(best, c_ns, pace) and len(times) < TIMED_AT_MOST:
            another_round()
            best, c_ns, pace = min(times, key=lambda each: each[0] / (each[2] if has_rate else each[1]))
        figures["ns"] = round(best, 2)
        if bound:
            figures["c_ns"] = round(c_ns, 2)
        if "per_second" in printed:
            figures["per_second"] = int(1e9 / best)
        if has_rate:
            figures["pace"] = round(pace, 2)
        if "round_trips" in printed:
            figures |= {"round_trips": int(printed["round_trips"]), "c_round_trips": int(expected["round_trips"])}
        return figures


def short_workloads(folder):
    """The same workloads but the first 1,000 PDUs only of the corpus, which is in random order; the capture is whole."""
    short = folder / "short"
    short.mkdir(exist_ok=True)
    for file in [*folder.glob("*.bin"), folder / "capture.btsnoop"]:
        link = short / file.name
        if not link.is_symlink() and file.name != "corpus.bin":
            link.symlink_to(Path("..") / file.name)
    data, at = (folder / "corpus.bin").read_bytes(), 4
    for _ in range(SHORT_PDUS):
        at += 2 + struct.unpack_from("<H", data, at)[0]
    (short / "corpus.bin").write_bytes(struct.pack("<I", SHORT_PDUS) + data[4:at])
    return short


# MARK: thresholds


def threshold_file(folder, id):
    return folder / ("B1-B2.json" if id in ("B1", "B2") else f"{id.split('.')[0]}.json")


def thresholds(folder):
    found = {}
    for file in folder.glob("*.json"):
        found |= json.loads(file.read_text())
    return found


def record(folder, rows):
    """Writes the measured rows into the files of thresholds; other rows stay unchanged."""
    without = {row.id for group in GROUPS for row in group.rows if not row.has_threshold}
    rows = {id: row for id, row in rows.items() if id not in without}
    for file in sorted({threshold_file(folder, id) for id in rows}):
        kept = json.loads(file.read_text()) if file.exists() else {}
        for id, row in rows.items():
            if threshold_file(folder, id) == file:
                kept[id] = {"instructions": row["instructions"], "allocations": row["allocations"]}
        order = [row.id for group in GROUPS for row in group.rows]
        lines = (f'  "{id}": {json.dumps(kept[id])}' for id in order if id in kept)
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def exceeds(row, threshold):
    for name in ("instructions", "allocations"):
        if row[name] > threshold[name] * TOLERANCE:
            yield f"{row[name]} {name}, the threshold is {threshold[name]}"


# MARK: text

COLUMNS = "{:<18}{:>10}{:>10}{:>7}{:>8}{:>11}{:>10}{:>7}  {:<8}{}"
COLOURS = {"stretch": "32", "missed": "31"}


def shown(value, bound):
    return (value, bound, f"{value / bound:.2f}") if bound else (value, "", "")


def table_line(row, word, is_coloured):
    instructions = shown(row["instructions"], row.get("c_instructions")) if "instructions" in row else ("", "", "")
    more = ""
    if "round_trips" in row:
        more = f"{row['round_trips']} round trips, C {row['c_round_trips']}"
    elif "per_second" in row:
        more = f"{row['per_second']:,}/s"
    times = shown(row["ns"], row.get("c_ns")) if "ns" in row else ("", "", "")
    text = COLUMNS.format(row["id"], *instructions, row.get("allocations", ""), *times, word, more).rstrip()
    return f"\x1b[{COLOURS[word]}m{text}\x1b[0m" if is_coloured and word in COLOURS else text


def goals_of(group):
    """The group's goals in words, each once."""
    kinds = {"must": [row.must for row in group.rows], "stretch": [row.stretch for row in group.rows]}
    texts = {kind: list(dict.fromkeys(str(goal) for goal in goals if goal)) for kind, goals in kinds.items()}
    # A goal's text for some rows contains its text for all.
    return "; ".join(f"{kind} {max(found, key=len)}" for kind, found in texts.items() if found)


class Progress:
    """A line on the terminal that the next one replaces; nothing elsewhere."""

    def __init__(self, total):
        self.total, self.done, self.is_live = total, 0, sys.stderr.isatty()

    def begin(self, id):
        self.done += 1
        self.write(f"measuring {id} ({self.done} of {self.total})")

    def write(self, text):
        if self.is_live:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


# MARK: main


def arguments():
    parser = argparse.ArgumentParser(
        prog="Benchmarks/run",
        description="Builds ours and the C bounds, measures both in one go, and prints one table: instructions "
        "(callgrind's) and heap allocations per item, the C bound's beside ours, times, and which goal is met.",
        epilog="Rows: B1 B2 B3.K0.300 … B3.K8.3000 B4.queue.20.1 … B4.host.495.32 B5.23 B5.517 B7 B8 B8.daemon B9.1 B9.8 B9.32, and x. for what is "
        "beside the goals; --list names all. Instructions and allocations are the same on every run; of times only the "
        "ratio within one run means something. BINDRUNE_BENCH_DIR: where it builds (Benchmarks/.build/measure).",
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these: an id, or how ids begin (B3, B4.queue)")
    parser.add_argument("--json", action="store_true", help="one object per row instead of the table")
    parser.add_argument(
        "--check",
        action="store_true",
        help="the short form, 1,000 PDUs; status 1 when a goal is missed or a figure is over its threshold by 5 %%",
    )
    parser.add_argument("--record", action="store_true", help="the short form, written to Thresholds/*.json")
    parser.add_argument("--peers", action="store_true", help="Bumble's rows too; installs it if need be, beside ours")
    parser.add_argument("--readme", action="store_true", help="the table of Benchmarks/README.md, in Markdown, instead of this one")
    parser.add_argument("--list", action="store_true", help="the ids of all rows")
    for hidden in ("--work", "--thresholds", "--peer-python", "--host-bench"):
        parser.add_argument(hidden, type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.check + chosen.record + chosen.readme > 1:
        parser.error("--check, --record and --readme: one of the three")
    known = [row.id for group in GROUPS for row in group.rows] + PEERS
    for word in chosen.rows:
        if not any(matches(id, [word]) for id in known):
            parser.error(f"there is no row {word}; `Benchmarks/run --list` names them")
    if chosen.list:
        print("\n".join(known))
        sys.exit(0)
    return chosen


def matches(id, words):
    return not words or any(id == word or id.startswith(word.rstrip(".") + ".") for word in words)


def main():
    chosen = arguments()
    if not chosen.work:  # only checks the arguments, before anything is built
        return
    is_short = chosen.check or chosen.record
    measurement = Measurement(chosen.work, is_short)
    groups = [(group, [row for row in group.rows if matches(row.id, chosen.rows)]) for group in GROUPS]
    progress = Progress(sum(len(rows) for _, rows in groups))
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    limits, measured, missed = thresholds(chosen.thresholds), {}, []

    has_table = not chosen.json and not chosen.readme

    def put(row, word=""):
        progress.write("")
        if not chosen.readme:
            print(json.dumps(row) if chosen.json else table_line(row, word, is_coloured), flush=True)

    def heading(title, goals=""):
        if has_table:
            print(f"\n{title}" + (f"\n    {goals}" if goals else ""), flush=True)

    if has_table:
        print(COLUMNS.format("", "instr", "C", "ratio", "allocs", "ns", "C ns", "ratio", "goal", "").rstrip())
    for group, rows in groups:
        if rows:
            heading(group.title, goals_of(group))
        for row in rows:
            progress.begin(row.id)
            figures = measured[row.id] = measurement.row(row)
            word = ""
            if row.must or row.stretch:
                misses = list(row.must.misses(figures, measured)) if row.must else []
                is_reached = not any(row.stretch.misses(figures, measured))
                word = "missed" if misses else "stretch" if is_reached else "must" if row.must else ""
                if chosen.check and row.has_threshold:
                    limit = limits.get(row.id)
                    misses += exceeds(figures, limit) if limit else ["no threshold; `Benchmarks/run --record` writes one"]
                missed += [f"{row.id}: {why}" for why in misses]
            put(figures, word)
    if not is_short and not chosen.readme:
        peer_rows = [id for id in PEERS if matches(id, chosen.rows)]
        for index, row in enumerate(peers.measured(peer_rows, chosen.work, chosen.peer_python, chosen.host_bench)):
            if index == 0:
                heading("x  peers, as installed here: times only")
            put(row)
    if chosen.readme:
        print(readme.table(measured))
    if missed:
        print("\n" + "\n".join(missed), file=sys.stderr)
    elif chosen.check:
        print("\nevery goal and threshold is met", file=sys.stderr)
    if chosen.record:
        record(chosen.thresholds, {id: row for id, row in measured.items() if not id.startswith("x.")})
        print(f"\nwritten to {chosen.thresholds}", file=sys.stderr)
    sys.exit(1 if missed and chosen.check else 0)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"\n{failure}" if sys.stderr.isatty() else str(failure))
    except KeyboardInterrupt:
        sys.exit(130)
