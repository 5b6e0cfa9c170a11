"""Checks after a case has passed in the guest: a function with the case's name gets the folder of the files that the
case has left, and returns None or the fault."""

import re
import subprocess

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
    return judged(folder, "serve") or judged(folder, "explore")


def traced(folder, name, *words):
    """`bindrune trace WORDS` over this trace of ours."""
    command = [folder.parents[2] / "bin" / "bindrune", "trace", *words, folder / f"{name}.btsnoop"]
    return subprocess.run(command, capture_output=True, text=True)


def kept(folder, name):
    """Our host keeps the rules in this trace of ours."""
    check = traced(folder, name, "check", "--json")
    broken = [line for line in check.stdout.splitlines() if '"party":"host"' in line]
    return f"{name}: {(broken or [check.stderr])[0]}" if check.returncode > 1 or broken else None


def judged(folder, name):
    """The same, and in a replay it sends the same again."""
    if fault := kept(folder, name):
        return fault
    replay = traced(folder, name, "replay")
    return f"{name}: {(replay.stdout + replay.stderr).splitlines()[-1]}" if replay.returncode else None


def hosts_monitor(folder):
    """The live reader and the recorder have the packets of btmon's file, for each adapter in the same order."""
    for adapter in (0, 1):
        ours, btmons = (btsnoop.packets(folder / name, adapter) for name in ("recorder.btsnoop", "btmon.btsnoop"))
        # The two began to listen at different moments, before the first command.
        if ours[-len(btmons) :] != btmons and btmons[-len(ours) :] != ours:
            return f"hci{adapter}: the recorder has {len(ours)} packets, btmon {len(btmons)}, and they differ"
        if len(btmons) < 50:
            return f"hci{adapter}: only {len(btmons)} packets"
    live, read = (
        [line.split("\t")[1:] for line in (folder / name).read_text().splitlines()] for name in ("live.out", "btmon.fields")
    )
    if live != read:
        return f"{len(live)} lines live and {len(read)} of btmon's file, and they differ"
    return None if len(live) > 50 else f"only {len(live)} lines"


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


# Pairing: what btmon has seen at each adapter.


class Link:
    """A link at one adapter: its Security Manager PDUs, how encryption changed, and what the server answered."""

    def __init__(self):
        self.codes, self.encryptions, self.is_encrypted = [], [], False
        self.refusals, self.unprotected, self.protected = 0, [], []

    def changed(self, status, is_on):  # Vol 4, Part E, §7.7.8
        self.encryptions.append((status, is_on))
        self.is_encrypted = status == 0 and is_on

    def passed(self, channel, pdu):
        if channel == 0x0006:
            self.codes.append(pdu[0])
        elif channel == 0x0004 and pdu[0] == 0x01 and pdu[4] in (0x05, 0x0F):  # ATT_ERROR_RSP
            self.refusals += 1
        elif channel == 0x0004 and pdu[0] == 0x0B and pdu[1:] in (b"secret", b"guarded"):  # ATT_READ_RSP
            (self.protected if self.is_encrypted else self.unprotected).append(pdu[1:].decode())


def links(path, adapter):
    """The links of hci`adapter`, in their order."""
    found, current = [], {}
    for packet in btsnoop.packets(path, adapter):
        octets = packet.octets
        if packet.type == btsnoop.EVENT and octets[0] == 0x3E and octets[2] in (0x01, 0x0A) and octets[3] == 0:
            current[octets[4:6]] = link = Link()
            found.append(link)
        elif packet.type == btsnoop.EVENT and octets[0] == 0x08:
            current[octets[3:5]].changed(octets[2], octets[5] != 0)
        elif packet.type == btsnoop.ACL and octets[1] >> 4 & 3 != 1 and len(octets) > 8:
            handle = bytes([octets[0], octets[1] & 0x0F])
            current[handle].passed(int.from_bytes(octets[6:8], "little"), octets[8:])
    return found


PAIRING_REQUEST, PAIRING_PUBLIC_KEY = 0x01, 0x0C  # Vol 3, Part H, §3.3


def paired(folder):
    """One pairing, of the generation that the case names; its link and each one after it are encrypted."""
    for adapter in (0, 1):
        all = links(folder / "btmon.btsnoop", adapter)
        requests = [link.codes.count(PAIRING_REQUEST) for link in all]
        if sum(requests) != 1 or requests[-1]:
            return f"hci{adapter}: Pairing Requests of the links: {requests}"
        place = requests.index(1)
        if (PAIRING_PUBLIC_KEY in all[place].codes) != ("-sc-" in folder.name):
            return f"hci{adapter}: it paired with the codes {bytes(all[place].codes).hex(' ')}"
        for number, link in enumerate(all):
            if set(link.encryptions) != (set() if number < place else {(0, True)}):
                return f"hci{adapter}: Encryption Changes of link {number} of {len(all)}: {link.encryptions}"
            if link.unprotected:
                return f"hci{adapter}: {link.unprotected} was read on link {number} without encryption"
        if not any(link.protected for link in all[place + 1 :]):
            return f"hci{adapter}: no protected value was read with the bond"
        is_refused = any(link.refusals for link in all[: place + 1])
        if not is_refused and (folder.name.startswith("central") or folder.name.endswith("works")):
            return f"hci{adapter}: no read was refused before the pairing"
    return None


pairing_peripheral_sc_just_works = pairing_central_sc_just_works = paired
pairing_peripheral_sc_numeric_comparison = pairing_central_sc_numeric_comparison = paired
pairing_peripheral_sc_passkey = pairing_central_sc_passkey = paired
pairing_peripheral_legacy_just_works = pairing_central_legacy_just_works = paired
pairing_peripheral_legacy_passkey = pairing_central_legacy_passkey = paired


def pairing_central_lost_key(folder):
    """The first link and the last pair. Between them BlueZ has no key (0x06): we neither encrypt nor pair."""
    for adapter in (0, 1):
        all = links(folder / "btmon.btsnoop", adapter)
        requests = [link.codes.count(PAIRING_REQUEST) for link in all]
        if requests != [1, 0, 0, 1]:
            return f"hci{adapter}: Pairing Requests of the links: {requests}"
        for link in all[1:3]:
            if any(is_on for _, is_on in link.encryptions) or adapter == 0 and (0x06, False) not in link.encryptions:
                return f"hci{adapter}: Encryption Changes without BlueZ's key: {link.encryptions}"
            if link.protected or link.unprotected:
                return f"hci{adapter}: a protected value was read without BlueZ's key"
    return None


def piped(folder):
    """A replay leaves channels out: it would have nothing to compare."""
    return kept(folder, "pipe")


channels_kernel_writes_legacy = channels_kernel_writes_ext = channels_kernel_writes_enhanced = piped
channels_kernel_reads_legacy = channels_kernel_reads_ext = piped


def pairing_central_sc_enhanced_bearers(folder):
    return kept(folder, "read")


def pairing_peripheral_sc_enhanced_bearers(folder):
    return kept(folder, "serve")
