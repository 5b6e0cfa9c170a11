"""The table of Benchmarks/README.md, from measured rows: `Benchmarks/run --readme`.

Peers are nanoseconds for the same work, measured once, on 2026-11-20, on a machine of the same kind, outside of this
repository: BlueZ 690c16d (in memory, without its kernel half), NimBLE 1e8ed60, BTstack 330e195, PureSwift/Bluetooth
034a7e3, Bumble 0.0.236. `Benchmarks/run --peers` measures Bumble anew.
"""

import datetime
import os
import re
import subprocess

PEERS = ["BlueZ", "NimBLE", "BTstack", "PureSwift", "Bumble"]
# Rows of a line (two: at 300 and at 3,000 attributes), what they do, and the peers' nanoseconds; "" where there are none.
LINES = [
    (["B1"], "decode a PDU and visit its fields", ["", "", "", "967", "5,540"]),
    (["B2"], "encode it", ["", "", "", "593", "1,940"]),
    ("K0", "Find Information", ["1,938 → 18,318", "444 → 1,675", "849 → 8,274", "28,700 → 276,000", "38,000 → 82,000"]),
    ("K1", "Read By Type, a service", ["644 → 829", "698 → 3,134", "1,042 → 8,291", "34,000 → 187,000", "124,000 → 464,000"]),
    ("K2", "Read By Type, everything", ["2,919 → 26,089", "793 → 5,370", "2,409 → 23,164", "22,000 → 169,000", "102,000 → 445,000"]),
    ("K3", "Read By Group Type", ["373 → 1,862", "467 → 1,716", "1,074 → 8,464", "7,200 → 30,000", "75,000 → 229,000"]),
    ("K4", "Find By Type Value", ["2,748 → 27,323", "1,026 → 7,265", "2,592 → 25,097", "8,600 → 59,000", "132,000 → 879,000"]),
    ("K5", "Read", ["192 → 279", "366 → 1,612", "836 → 8,068", "14,500 → 104,000", "21,600 → 21,700"]),
    ("K6", "Read Blob", ["186 → 279", "400 → 1,682", "886 → 8,327", "13,700 → 102,000", "31,000 → 33,000"]),
    ("K7", "Write", ["206 → 303", "374 → 1,631", "804 → 8,313", "53,000 → 331,000", "21,000 → 21,100"]),
    ("K8", "Prepare and Execute Write", ["270 → 387", "838 → 4,995", "653 → 6,468", "26,000 → 154,000", "23,700 → 24,300"]),
    (["B4.queue.244.1"], "queue and framing alone: a notification of 244 octets into its packet, 1 link", [""] * 5),
    (["B4.queue.244.32"], "32 links", [""] * 5),
    (["x.queue.244.1"], "the same, waiting for a buffer, 1 link", [""] * 5),
    (["B4.host.20.1"], "20 octets through the host, 1 link", ["77", "123", "138", "", "94,600"]),
    (["B4.host.244.1"], "244 octets, 1 link", ["77", "147", "138", "", "438,000"]),
    (["B4.host.244.8"], "8 links", ["75", "211", "837", "", ""]),
    (["B4.host.244.32"], "32 links", ["79", "296", "7,836", "", ""]),
    (["x.host.244.1"], "244 octets, waiting for a buffer, 1 link", [""] * 5),
    (["B4.host.495.1"], "495 octets, 1 link", ["72", "234", "154", "", "777,000"]),
    (["B5.23"], "discovery, MTU 23", ["200,000", "", "", "7,400,000", "55,800,000"]),
    (["B5.517"], "discovery, MTU 517", ["91,000", "", "", "6,900,000", "38,200,000"]),
    (["B6.read"], "a record of a btsnoop file, to ATT, every field visited", [""] * 5),
    (["B6.fields"], "the same as tab-separated text", [""] * 5),
    (["B6.check"], "the same judged by 151 rules", [""] * 5),
    (["B7"], "host to host over the simulated radio", [""] * 5),
    (["B8"], "the same from `CBPeripheralManager` to a `CBPeripheralDelegate`, with all threads, in real time", [""] * 5),
    (["B8.daemon"], "the same, each manager through `bindruned`'s socket", [""] * 5),
    (["B9.1"], "a notification of 244 octets from its packet to the host's observer, 1 link", [""] * 5),
    (["B9.8"], "8 links", [""] * 5),
    (["B9.32"], "32 links", [""] * 5),
    (["B10.plain"], "a report of a scan from its packet to the host's effect", [""] * 5),
    (["B10.all"], "with 128 bonds and 1,000 requests to connect", [""] * 5),
    (["B11.down.247"], "a channel's SDU of 2,000 octets into its packets, K-frames of 247 octets", [""] * 5),
    (["B11.down.1024"], "K-frames of 1,024 octets", [""] * 5),
    (["B11.up.247"], "such an SDU from its packets to the host's effect, K-frames of 247 octets", [""] * 5),
    (["B11.up.1024"], "K-frames of 1,024 octets", [""] * 5),
]  # fmt: skip


def first_line(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0].strip()


def machine():
    with open("/proc/cpuinfo") as file:
        model = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    swift = re.search(r"version (\S+)", first_line("swift", "--version"))
    gcc = first_line("gcc", "--version").split()[-1]
    valgrind = first_line("valgrind", "--version").removeprefix("valgrind-")
    return (
        f"{datetime.date.today()}, {model[1] if model else 'unknown CPU'}, {os.cpu_count()} cores, Swift "
        f"{swift[1] if swift else '?'} release, gcc {gcc} -O2, valgrind {valgrind}"
    )


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def line(ids, work, peers, rows):
    """A line of the table; empty when a row of it was not measured."""
    if isinstance(ids, str):
        ids = [f"B3.{ids}.300", f"B3.{ids}.3000"]
    if any(id not in rows for id in ids):
        return ""
    found = [rows[id] for id in ids]

    def cell(name):
        return " → ".join(figure(row[name]) for row in found if name in row)

    ratio = " → ".join(f"{row['instructions'] / row['c_instructions']:.2f}" for row in found if "c_instructions" in row)
    if "round_trips" in found[0]:
        work += f": {found[0]['round_trips']} round trips, C {found[0]['c_round_trips']}"
    if "per_second" in found[0]:
        work += f": {found[0]['per_second']:,} {'reports' if ids[0].startswith('B10') else 'notifications'}/s"
    allocations = " → ".join(dict.fromkeys(str(row["allocations"]) for row in found))
    name = ids[0].removesuffix(".300")
    cells = [name, work, cell("instructions"), cell("c_instructions"), ratio, allocations, cell("ns"), cell("c_ns"), *peers]
    return f"| {' | '.join(cells)} |"


def table(rows):
    head = ["row", "work", "instructions", "C", "ratio", "allocations", "ns", "C ns", *PEERS]
    lines = [line(*each, rows) for each in LINES]
    rule = "|---|---|" + "--:|" * (len(head) - 2)
    return "\n".join([f"{machine()}:", "", f"| {' | '.join(head)} |", rule, *filter(None, lines)])
