#!/usr/bin/env python3
"""Writes NAME.tsv beside each trace here: the ATT, SMP and signaling PDUs that tshark finds in it.

Columns: the number of the record that completes the PDU, S (from the host) or R, the connection handle, the layer, the PDU.
Run it after a trace was added: python3 Fixtures/Traces/expected.py. It needs tshark.
"""

import json
import subprocess
from pathlib import Path

LAYERS = {"btatt": "att", "btsmp": "smp", "btl2cap": "sig"}


def raw(layers, name):
    """The octets of a layer, of which tshark may list several."""
    found = layers.get(f"{name}_raw")
    if not found:
        return []
    return [each[0] for each in found] if isinstance(found[0], list) else [found[0]]


def rows(path):
    text = subprocess.run(
        ["tshark", "-r", path, "-T", "json", "-x", "--no-duplicate-keys"], check=True, capture_output=True, text=True
    ).stdout
    for packet in json.loads(text):
        layers = packet["_source"]["layers"]
        if "bthci_acl" not in layers or "btl2cap" not in layers:
            continue
        frame = layers["frame"]["frame.number"]
        if "hci_mon" in layers:  # Linux's monitor: ACL packets are sent with opcode 4
            direction = "S" if layers["hci_mon"]["hci_mon.opcode"] == "4" else "R"
        else:
            direction = "S" if layers["hci_h4"]["hci_h4.direction"] in ("0x00", "0") else "R"
        handle = f"0x{int(layers['bthci_acl']['bthci_acl.chandle'], 0):04x}"
        channel = int(layers["btl2cap"].get("btl2cap.cid", "0"), 0)
        for name in ("btatt", "btsmp"):
            for pdu in raw(layers, name):
                yield frame, direction, handle, LAYERS[name], pdu
        if channel in (1, 5):
            # The payload of the frame: four octets of header precede it.
            for frame_octets in raw(layers, "btl2cap"):
                yield frame, direction, handle, "sig", frame_octets[8:]


for trace in sorted(Path(__file__).parent.glob("*.btsnoop")):
    lines = ["\t".join(row) for row in rows(trace)]
    trace.with_suffix(".tsv").write_text("".join(line + "\n" for line in lines))
    print(f"{trace.name}: {len(lines)} PDUs")
