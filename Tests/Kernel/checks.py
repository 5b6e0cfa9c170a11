"""Checks after a case has passed in the guest: a function with the case's name gets the folder of the files that the
case has left, and returns None or the fault."""

import re

import btsnoop


def central_long_values_legacy(folder):
    """bluetoothctl shows exactly the octets that KernelCentral wrote."""
    dialogue = re.sub(r"\x1b\[[0-9;]*[mPKJ]", "", (folder / "dialogue").read_text(errors="replace"))
    dump = dialogue.partition("WriteValue:")[2].partition("ReadValue:")[0]
    rows = re.findall(r"  ((?:[0-9a-f]{2} ){1,16}) ", dump)
    shown, wanted = bytes.fromhex("".join(rows)), bytes((place * 7 + (place >> 8)) & 0xFF for place in range(510))
    return None if shown == wanted else f"BlueZ shows {len(shown)} octets as written: {shown.hex(' ')}"


central_long_values_ext = central_long_values_legacy


def hosts_trace(folder):
    """Our traces and the kernel's monitor hold the same packets. Each direction is compared by itself: we note a packet
    when it is written or read, the kernel when it passes the driver, so those of the two directions may change places."""
    for name, adapter in [("serve", 0), ("explore", 1)]:
        ours, kernels = btsnoop.packets(folder / f"{name}.btsnoop"), btsnoop.packets(folder / "btmon.btsnoop", adapter)
        for is_sent, direction in [(True, "to"), (False, "from")]:
            mine, theirs = ([packet for packet in packets if packet.is_sent == is_sent] for packets in (ours, kernels))
            for number, (one, other) in enumerate(zip(mine, theirs)):
                if one != other:
                    return f"{name}: packet {number} {direction} the controller is {one}, and btmon's {other}"
            surplus = theirs[len(mine) :]
            if len(mine) > len(theirs) or any(not answers_the_last(packet, ours) for packet in surplus):
                return f"{name}: {len(mine)} packets {direction} the controller, and btmon has {len(theirs)}"
        if len(ours) < 50:
            return f"{name}: only {len(ours)} packets"
    return None


def answers_the_last(packet, ours):
    """Whether `packet` completes a command that we sent after the last packet read: a closing host does not read."""
    last_read = max((number for number, each in enumerate(ours) if not each.is_sent), default=-1)
    waiting = [each.octets[:2] for each in ours[last_read + 1 :] if each.type == btsnoop.COMMAND]
    return not packet.is_sent and packet.type == btsnoop.EVENT and packet.octets[0] == 0x0E and packet.octets[3:5] in waiting


def hosts_overrun_reader_of_fragments(folder):
    """The log has as many incomplete fragments as the trace: none goes unnoticed."""
    log = (folder / "central.err").read_text(errors="replace")
    told = len(re.findall("continues no frame|a frame ended after", log))
    seen, missing = 0, 0
    for packet in btsnoop.packets(folder / "central.btsnoop"):
        if packet.type != btsnoop.ACL or packet.is_sent:
            continue
        data, is_first = packet.octets[4:], packet.octets[1] >> 4 & 3 != 1
        if is_first:
            seen += missing > 0
            missing = int.from_bytes(data[:2], "little") + 4 - len(data)
        elif missing:
            missing -= len(data)
        else:
            seen += 1
    return None if told == seen else f"{seen} fragments do not fit in the trace, and {told} in the log"
