#!/usr/bin/env python3
"""Compares the advertisements of `bindrune advertise`, received by a raw HCI host, with captures of iPhones.

packing.py HOST:PORT --tool bindrune --vectors Fixtures/Vectors/overflow.txt

A line per check; exit status 0 all passed, 1 some failed, 2 nothing ran. The flags are ours, 06, for a device without BR/EDR.
"""
import argparse
import asyncio
import json
import os
import sys

from bumble.hci import Address

import advertisements as ad
import peers
from controllers import BareHost

LONG = 'A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00'


def captured_masks(path):
    """(mask, UUIDs): the lines `mask OCTETS: UUIDs`."""
    for line in open(path):
        if line.startswith('mask '):
            mask, uuids = line.removeprefix('mask ').split(':')
            yield bytes.fromhex(mask), uuids.split()


def overflow(mask):
    return ad.manufacturer(bytes.fromhex('4C0001') + mask)


def bits(**octets):
    """A mask, of octets by their places: o4=0x10."""
    return bytes(octets.get(f'o{place}', 0) for place in range(16))


def cases(vectors):
    """Title, options, advertising data, scan response."""
    (background, all_33), (foreground, rest) = captured_masks(vectors)
    chosen = all_33[:len(all_33) - len(rest)]
    services = [option for uuid in all_33 for option in ('--service', uuid)]
    listed = b''.join(bytes.fromhex(uuid)[::-1] for uuid in chosen)
    yield 'Fred and C007', ['--name', 'Fred', '--service', 'C007'], ad.flags() + ad.short_services('C007') + ad.name('Fred'), b''
    yield 'a long name behind a 128-bit UUID', ['--name', 'LightBlue on Linux', '--service', LONG], \
        ad.flags() + ad.long_services(LONG) + ad.structure(0x08, b'LightBlu'), b''
    yield '33 services in the foreground', services, ad.flags() + ad.structure(0x02, listed), overflow(foreground)
    yield '33 services in the background', ['--background', '--name', 'Fred'] + services, ad.flags() + overflow(background), b''
    # The bits of C007 and C008: hcidumps. The list of 16 bits is incomplete then (02), that of 128 bits complete (07).
    yield 'both', ['--service', LONG] + [option for uuid in ('180D', '180F', '180A', '1812', 'C007', 'C008')
                                         for option in ('--service', uuid)], \
        ad.flags() + ad.structure(0x02, bytes.fromhex('0d180f180a181218')) + ad.long_services(LONG), \
        overflow(bits(o4=0x10, o7=0x08))
    yield 'policy standard', ['--policy', 'standard', '--name', 'Both halves', '--service', LONG, '--manufacturer', 'FFFF0102'], \
        None, None
    yield 'policy extended', ['--policy', 'extended', '--name', 'Extended', '--service', LONG], None, None


async def run(args, check):
    for title, options, data, scan_response in cases(args.vectors):
        host = await BareHost.open(args.spec, Address('CB:00:00:00:00:0B', Address.RANDOM_DEVICE_ADDRESS))
        tool = await asyncio.create_subprocess_exec(
            args.tool, 'advertise', '--hci', f'tcp:{args.spec}', '--json', *options, stdout=asyncio.subprocess.PIPE)
        try:
            line = await asyncio.wait_for(tool.stdout.readline(), 10)
            own = Address(json.loads(line)['address'], Address.PUBLIC_DEVICE_ADDRESS)
            since = host.now
            await host.scans()
            heard = await host.report(since, lambda each: each.address == bytes(own) and not each.is_scan_response)
            response = await host.report(since, lambda each: each.address == bytes(own) and each.is_scan_response, 1)
            answer = response.data if response else b''
            if data is not None:
                check(f'{title}: advertising data', heard and heard.data, data)
                check(f'{title}: scan response', answer, scan_response)
            else:  # the order is ours; the structures are what was asked for
                structures = sorted(split(heard.data if heard else b'') + split(answer))
                wanted = [ad.flags(), ad.long_services(LONG), ad.name(options[3])]
                wanted += [ad.manufacturer(bytes.fromhex('FFFF0102'))] if '--manufacturer' in options else []
                check(f'{title}: structures', structures, sorted(wanted))
            check(f'{title}: PDUs', heard and heard.is_legacy_pdu, 'extended' not in options)
        finally:
            tool.terminate()
            await tool.wait()
            await host.close()


def split(data):
    found = []
    while data:
        found.append(data[:data[0] + 1])
        data = data[data[0] + 1:]
    return found


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('spec', metavar='HOST:PORT')
    parser.add_argument('--tool', required=True)
    parser.add_argument('--vectors', required=True)
    args = parser.parse_args()
    check = peers.Checks()
    try:
        await asyncio.wait_for(run(args, check), 60)
    except Exception as error:
        check('completed', repr(error), 'no error')
    sys.stdout.flush()
    os._exit(check.status)  # Bumble's tasks are not waited for


if __name__ == '__main__':
    asyncio.run(main())
