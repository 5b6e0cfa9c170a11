#!/usr/bin/env python3
"""Measures what Benchmarks/run has built: measure.py WORK THRESHOLDS [--json] [--check] [ID ...].

A row is an id, a program of ours, and the C bound's program; both take `ID WORKLOADS REPETITIONS BATCHES` and print
`ID ns MEDIAN check SUM items N`. The two sums must be equal: both did the same work. A new row is a line in ROWS.
Ids that begin with `x.` are figures beside the goals: x.loop is what the loop around B1 and B2 costs each side.
"""

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

# id, our program, the C bound's program (None: no bound), repetitions of a timed batch
ROWS = [
    ("B1", "Bench", "codec", 100),
    ("B2", "Bench", "codec", 100),
    ("x.loop", "Bench", "codec", 100),
]
BATCHES = 9
ROUNDS = 3
# A figure may be this much over its threshold: compilers move a little.
TOLERANCE = 1.05


class Program:
    def __init__(self, work, name, row):
        self.work, self.path, self.row = work, str(work / name), row

    def run(self, repetitions, batches=1, before=(), **environment):
        command = [*before, self.path, self.row, str(self.work / "workloads"), str(repetitions), str(batches)]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", env={**os.environ, **environment}
        )
        line = re.search(r"ns (\S+) check (\d+) items (\d+)", done.stdout)
        if done.returncode != 0 or not line:
            sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout[-500:]}\n{done.stderr[-1500:]}")
        self.check, self.items = int(line[2]), int(line[3])
        return float(line[1]), done.stderr

    def slope(self, pattern, **how):
        """What two more repetitions cost, per item."""
        count = {}
        for repetitions in (1, 3):
            found = re.search(pattern, self.run(repetitions, **how)[1])
            if not found:
                sys.exit(f"{self.path}: nothing counted")
            count[repetitions] = int(found[1])
        return (count[3] - count[1]) / 2 / self.items

    def instructions(self):
        tool = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
        return self.slope(r"Collected\s*:\s*(\d+)", before=tool)

    def allocations(self):
        return self.slope(r"ALLOCATIONS (\d+)", LD_PRELOAD=str(self.work / "allocations.so"))


def measured(work, id, ours, bound, repetitions):
    ours = Program(work, ours, id)
    row = {"id": id, "instructions": round(ours.instructions(), 1)}
    programs = {"ns": ours}
    if bound:
        programs["c_ns"] = bound = Program(work, bound, id)
        row["c_instructions"] = round(bound.instructions(), 1)
        if ours.check != bound.check:
            sys.exit(f"{id}: ours adds up to {ours.check}, the C bound to {bound.check}: not the same work")
    row["allocations"] = round(ours.allocations(), 3)
    # Ours and the bound in turns, so that a slow moment of the machine hits both.
    times = {name: [] for name in programs}
    for _ in range(ROUNDS):
        for name, program in programs.items():
            times[name].append(program.run(repetitions, BATCHES)[0])
    return row | {name: round(statistics.median(found), 2) for name, found in times.items()}


def misses(row, threshold):
    """What of `threshold` the row misses: the goal (must x C + plus) and the figures of the last recording."""
    if "must" in threshold:
        goal = threshold["must"] * row["c_instructions"] + threshold.get("plus", 0)
        if row["instructions"] > goal:
            yield f"{row['instructions']} instructions, the goal is {goal:.1f}"
    if row["instructions"] > threshold["instructions"] * TOLERANCE:
        yield f"{row['instructions']} instructions, the threshold is {threshold['instructions']}"
    if row["allocations"] > threshold["allocations"] * TOLERANCE:
        yield f"{row['allocations']} allocations, the threshold is {threshold['allocations']}"


def text(row):
    bound = row.get("c_instructions")
    ratio = f"{row['instructions'] / bound:.2f}" if bound else "-"
    times = f"{row['ns']:>8} {row.get('c_ns', '-'):>8} " + (f"{row['ns'] / row['c_ns']:.2f}" if bound else "-").rjust(6)
    return f"{row['id']:<16} {row['instructions']:>10} {bound or '-':>10} {ratio:>6} {row['allocations']:>7} {times}"


def main():
    work, thresholds, *rest = sys.argv[1:]
    flags = {word for word in rest if word.startswith("--")}
    wanted = [word for word in rest if not word.startswith("--")]
    known = [row[0] for row in ROWS]
    if flags - {"--json", "--check"} or set(wanted) - set(known):
        sys.exit(f"usage: Benchmarks/run [--json] [--check] [ID ...]; the rows are {' '.join(known)}")
    limits = {}
    for file in Path(thresholds).glob("*.json"):
        limits |= json.loads(file.read_text())
    if "--json" not in flags:
        columns = ("instr", "C", "ratio", "allocs", "ns", "C ns", "ratio")
        print("{:<16} {:>10} {:>10} {:>6} {:>7} {:>8} {:>8} {:>6}".format("per item", *columns))
    missed = []
    for row in ROWS:
        if wanted and row[0] not in wanted:
            continue
        figures = measured(Path(work), *row)
        print(json.dumps(figures) if "--json" in flags else text(figures), flush=True)
        missed += [f"{row[0]}: {why}" for why in misses(figures, limits[row[0]])] if row[0] in limits else []
    if "--check" in flags:
        print("\n".join(missed) or "every goal and threshold is met", file=sys.stderr)
        sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
