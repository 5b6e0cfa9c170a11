#!/usr/bin/env python3
"""Checks of what a program printed, a line each; exit status 0 all passed, 1 some failed, 2 nothing ran.

checks.py scan FILE                 the lines of `bindrune scan --json` near peer_peripheral.py
checks.py air FILE [passive]        the lines of `bindrune scan --json` near peer_advertiser.py
checks.py commands FILE             a btsnoop file of ours: no command was refused, legacy and extended ones were not mixed
checks.py explore FILE              the lines of `bindrune explore --json` of peer_peripheral.py
checks.py exit FILE name=value …    what peer_peripheral.py counted
checks.py refusal FILE STATUS       the words and the exit status of a program without a usable controller
checks.py advertise FILE PDUS       the lines of `bindrune advertise --json`, beside peer_scanner.py
checks.py bench FILE COUNT          what `bindrune bench --json` printed, of so many of each
checks.py shared_rates FILE COUNT   what HeartRateCentral printed of the endless heart rates of peer_peripheral.py
checks.py shared_link FILE          what peer_peripheral.py saw of two apps that shared its link
checks.py demo FILE STATUS SECONDS  what `bindrune demo` printed
checks.py conformance FILE FOLDER COUNT   the lines of `bindrune conform --json` against Bumble; the scripts' folder;
                                    how many were played at least
"""
import json
import os
import re
import sys

import advertisements
import database

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'Kernel'))
import btsnoop  # noqa: E402


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def __call__(self, name, got, want=True):
        if got == want:
            self.passed += 1
            print(f'ok  {name}')
        else:
            self.failed += 1
            print(f'FAIL {name}: got {self.text(got)} want {self.text(want)}')

    @staticmethod
    def text(value):
        text = repr(value)
        return text if len(text) <= 400 else text[:400] + f'… ({len(text)})'


check = Checks()


def events(path):
    """The objects of a file of JSON lines, by their "event"."""
    found, bad = {}, []
    for line in open(path):
        try:
            each = json.loads(line)
            found.setdefault(each['event'], []).append(each)
        except (ValueError, KeyError, TypeError):
            bad.append(line.rstrip())
    check('every line is an object with an event', bad, [])
    return found


def scan(path):
    seen = [each for each in events(path).get('advertisement', []) if each.get('address') == database.ADDRESS]
    check('the peripheral was seen', len(seen) > 0)
    if not seen:
        return
    best = next((each for each in seen if each.get('name')), seen[0])
    check('address type', best.get('address_type'), 'random')
    check('name', best.get('name'), database.NAME)
    check('services', set(best.get('services') or []) >= {'180D', '180F'})
    check('rssi is a number of dBm', isinstance(best.get('rssi'), int) and -128 < best['rssi'] < 21)


def air(path, mode='active'):
    """Each advertisement of advertisements.py is found unchanged, joined with its scan response."""
    lines = events(path).get('advertisement', [])
    for title, each in advertisements.ADVERTISERS.items():
        mine = [line for line in lines if line.get('address') == each.address]
        if not mine:
            check(f'{title}: heard', False)
            continue
        last, services, name = mine[-1], each.services, each.name
        if mode == 'passive':
            services = [uuid for uuid in services if uuid not in each.services_in_response]
            name = None if each.name_in_response else name
            check(f'{title}: no scan response', any(line.get('scan_response') for line in mine), False)
        check(f'{title}: name', last.get('name'), name)
        check(f'{title}: services', last.get('services'), services)
        check(f'{title}: connectable', last.get('connectable'), each.is_connectable)
        if mode != 'passive' or each.manufacturer == advertisements.OVERFLOW:
            check(f'{title}: manufacturer data', bytes.fromhex(last.get('manufacturer_data') or '') or None, each.manufacturer)
        check(f'{title}: service data', last.get('service_data') or {}, each.service_data)
        check(f'{title}: whole', any(line.get('truncated') for line in mine), False)
        check(f'{title}: nothing else', {line.get('name') for line in mine} <= {each.name, None})


# Vol 4, Part E, §3.1.1: after one of a kind the controller refuses the others until it is reset.
LEGACY_COMMANDS, EXTENDED_COMMANDS = {*range(0x2006, 0x200E)}, {*range(0x2036, 0x2047)}
RESET = 0x0C03


def sent(path):
    """The opcodes of our commands."""
    return [int.from_bytes(each.octets[:2], 'little') for each in btsnoop.packets(path) if each.type == btsnoop.COMMAND]


def commands(path):
    used, mixed, refused = set(), [], []
    for packet in btsnoop.packets(path):
        octets = packet.octets
        if packet.type == btsnoop.COMMAND:
            opcode = int.from_bytes(octets[:2], 'little')
            used = set() if opcode == RESET else used | {opcode}
            if used & LEGACY_COMMANDS and used & EXTENDED_COMMANDS:
                mixed.append(f'0x{opcode:04X}')
        elif packet.type == btsnoop.EVENT and octets[0] in (0x0E, 0x0F):
            opcode, status = (octets[3:5], octets[5]) if octets[0] == 0x0E else (octets[4:6], octets[2])
            if status and int.from_bytes(opcode, 'little'):
                refused.append(f'0x{int.from_bytes(opcode, "little"):04X}: 0x{status:02X}')
    check('legacy and extended commands are not mixed', mixed, [])
    check('no command was refused', refused, [])


def explore(path):
    found = events(path)
    placed = [each for each in database.placed()]
    primary = [each for each in placed if each.service is None or each.service.primary]
    check('services', [(each.get('uuid'), each.get('start'), each.get('end'))
                       for each in found.get('service', []) if each.get('primary')],
          [(each.what.uuid, each.handle, each.end)
           for each in primary if isinstance(each.what, database.Service) and each.what.primary])
    groups = {each.what.uuid: each for each in placed if isinstance(each.what, database.Service)}
    check('includes', [(each.get('uuid'), each.get('start'), each.get('end')) for each in found.get('include', [])],
          [(uuid, groups[uuid].handle, groups[uuid].end) for uuid in database.SERVICES[-1].includes])

    characteristics = {each.get('value_handle'): each for each in found.get('characteristic', [])}
    wanted = [each for each in primary if isinstance(each.what, database.Characteristic)]
    check('characteristics',
          [(each.get('uuid'), each.get('declaration'), sorted(each.get('properties', [])))
           for _, each in sorted(characteristics.items()) if groups[database.SECONDARY].end < each['value_handle']
           or each['value_handle'] < groups[database.SECONDARY].handle],
          [(each.what.uuid, each.handle, sorted(each.what.properties)) for each in wanted])
    for each in wanted:
        shown, name = characteristics.get(each.handle + 1, {}), f'value of {each.what.uuid[:8]}'
        error = (shown.get('error') or {}).get('code')
        if isinstance(each.what.reads, bytes):
            check(name, shown.get('value'), each.what.reads.hex().upper())
        elif 'read' in each.what.properties:
            check(name + ' is refused', (shown.get('value'), error), (None, f'0x{each.what.reads:02X}'))
        else:
            check(name + ' is not shown', shown.get('value'), None)
    check('descriptors', sorted((each.get('uuid'), each.get('handle'), each.get('value'))
                                for each in found.get('descriptor', [])),
          sorted((each.what.uuid, each.handle, each.what.reads.hex().upper())
                 for each in placed if isinstance(each.what, database.Descriptor)))
    check('done', len(found.get('done', [])), 1)


def counted(path, *expected):
    found = events(path).get('exit', [{}])[-1]
    for each in expected:
        name, value = each.split('=')
        check(f'the peer counted {name}', str(found.get(name)), value)


def refusal(path, status):
    lines = [line for line in open(path).read().splitlines() if line.strip()]
    check('exit status', int(status), 1)
    check('one sentence names the cause', len(lines) == 1 and len(lines[0].split()) > 2 or lines)


def advertise(path, pdus):
    found = events(path)
    check('PDUs', [each.get('pdus') for each in found.get('advertising', [])], [pdus])
    came, went = ([each.get('address') for each in found.get(event, [])] for event in ('connected', 'disconnected'))
    check('whoever connects is told of, and goes', len(came) > 0 and came == went or (came, went))


def bench(path, count):
    """Nothing is lost, with any controllers: the numbers agree."""
    told, count = json.load(open(path)), int(count)
    check('complete', told['complete'])
    check('reads', told['reads']['count'], count)
    check('histogram', sum(row['count'] for row in told['reads']['histogram']), count)
    check('write commands, offered and arrived', [told['writes'][it] for it in ('offered', 'arrived')], [count] * 2)
    check('notifications, sent and received', [told['notifications'][it] for it in ('sent', 'received')], [count] * 2)
    check('notifications in order', told['notifications']['gaps'], 0)


def demo(path, status, seconds):
    text = open(path).read()
    check('exit status', int(status), 0)
    check('under 5 s', float(seconds) < 5 or float(seconds))
    for step in ('scan', 'connect', 'MTU', 'discover', 'read', 'write', 'subscribe', 'disconnect'):
        check(f'step {step}', step.lower() in text.lower())
    values = [line for line in text.splitlines() if line.strip().startswith('Heart Rate Measurement')]
    check('ten notified values', len(values), 10)


def heart_rates(path, first=None):
    """What HeartRateCentral prints: ten lines with a heart rate each, from `first` on one more each time, as Bumble's does."""
    lines = open(path).read().splitlines()
    rates = [int(number[0]) if number else None for number in (re.search(r'\d+', line) for line in lines)]
    check('ten lines', len(lines) == 10 or lines)
    if first:
        check('in order, none missing', rates, list(range(int(first), int(first) + 10)))
    else:
        check('heart rates', [rate for rate in rates if rate is None or not 30 <= rate <= 240], [])


def shared_rates(path, count):
    """What HeartRateCentral prints of the endless heart rates of peer_peripheral.py: none is missing, from wherever it began."""
    rates = [int(number) for number in re.findall(r'(\d+) bpm', open(path).read())]
    cycle = [value[1] for value in database.HEART_RATES]
    check(f'{count} heart rates or more', len(rates) >= int(count) or rates)
    expected = [cycle[(cycle.index(rates[0]) + number) % len(cycle)] for number in range(len(rates))] if rates[:1] and rates[0] in cycle else None
    check('in order, none missing', rates, expected)


def shared_link(path):
    """Two apps had one link and one subscription, and the second to go has ended both."""
    disconnection(path)
    subscriptions = [each.get('notify') for each in events(path).get('subscription', [])]
    check('one subscription', subscriptions[:1] == [True] and True not in subscriptions[1:] or subscriptions)


def disconnection(path):
    """The central of peer_peripheral.py disconnects with Remote User Terminated Connection, instead of falling silent."""
    found = events(path)
    check('connections', len(found.get('connection', [])), 1)
    check('disconnected by the central', [each.get('reason') for each in found.get('disconnection', [])], [0x13])


def conformance(path, folder, count, least=None):
    results, count = {}, int(count)
    for line in open(path):
        each = json.loads(line)
        if 'result' in each:
            # A script with cases fails if one of them does.
            name = os.path.relpath(each['name'].split(' [')[0], folder)
            results[name] = 'FAIL' if results.get(name) == 'FAIL' else each['result']
    listed = set(re.findall(r'`((?:GATT|L2CAP|own|SM)/[^`]*/[^`]*)`', open(os.path.join(folder, 'BUMBLE.md')).read()))
    failed = {name for name, result in results.items() if result == 'FAIL'}
    check(f'at least {count} scripts were played', len(results) >= count or len(results))
    passed = sum(result == 'PASS' for result in results.values())
    check('most pass', passed >= int(least or len(results) // 2 + 1) or passed)
    check('what fails is listed', sorted(failed - listed), [])
    check('what is listed fails', sorted(name for name in listed & results.keys() if name not in failed), [])


if __name__ == '__main__':
    names = {'scan': scan, 'air': air, 'commands': commands, 'explore': explore, 'exit': counted, 'refusal': refusal, 'advertise': advertise,
                'bench': bench, 'demo': demo, 'heart_rates': heart_rates, 'disconnection': disconnection, 'shared_rates': shared_rates,
                'shared_link': shared_link, 'conformance': conformance}
    names[sys.argv[1]](*sys.argv[2:])
    sys.exit(1 if check.failed else 0 if check.passed else 2)
