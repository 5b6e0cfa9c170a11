#!/usr/bin/env python3
"""Checks of what a program printed, a line each; exit status 0 all passed, 1 some failed, 2 nothing ran.

checks.py scan FILE                 the lines of `bindrune scan --json` near peer_peripheral.py
checks.py explore FILE              the lines of `bindrune explore --json` of peer_peripheral.py
checks.py exit FILE name=value …    what peer_peripheral.py counted
checks.py refusal FILE STATUS       the words and the exit status of a program without a usable controller
checks.py advertise FILE PDUS       the lines of `bindrune advertise --json`, beside peer_scanner.py
checks.py demo FILE STATUS SECONDS  what `bindrune demo` printed
checks.py conformance FILE FOLDER   the lines of `bindrune conform --json` against Bumble; the scripts' folder
"""
import json
import os
import re
import sys

import database


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


def demo(path, status, seconds):
    text = open(path).read()
    check('exit status', int(status), 0)
    check('under 5 s', float(seconds) < 5 or float(seconds))
    for step in ('scan', 'connect', 'MTU', 'discover', 'read', 'write', 'subscribe', 'disconnect'):
        check(f'step {step}', step.lower() in text.lower())
    values = [line for line in text.splitlines() if line.strip().startswith('Heart Rate Measurement')]
    check('ten notified values', len(values), 10)


def conformance(path, folder):
    results = {}
    for line in open(path):
        each = json.loads(line)
        if 'result' in each:
            results[os.path.relpath(each['name'], folder)] = each['result']
    listed = set(re.findall(r'`((?:GATT|own)/[^`]*/[^`]*)`', open(os.path.join(folder, 'BUMBLE.md')).read()))
    failed = {name for name, result in results.items() if result == 'FAIL'}
    check('more than 150 scripts were played', len(results) > 150 or len(results))
    check('what fails is listed', sorted(failed - listed), [])
    check('what is listed fails', sorted(name for name in listed & results.keys() if name not in failed), [])


if __name__ == '__main__':
    commands = {'scan': scan, 'explore': explore, 'exit': counted, 'refusal': refusal, 'advertise': advertise,
                'demo': demo, 'conformance': conformance}
    commands[sys.argv[1]](*sys.argv[2:])
    sys.exit(1 if check.failed else 0 if check.passed else 2)
