#!/usr/bin/env python3
"""Checks of our advertising, scanning and connections by Bumble hosts on controllers that conform to the Specification.

gap.py HOST:PORT --program InteropGAP [--only PART]… [--traces FOLDER]

Ours is the program, which is told what to do; the others are hosts that are only HCI (controllers.py), and Bumble's. Every
part has fresh controllers. A line per check; exit status 0 all passed, 1 some failed, 2 nothing ran.
"""
import argparse
import asyncio
import json
import os
import sys

from bumble import crypto, hci
from bumble.hci import Address

import advertisements as ad
import checks
import database
import peer_advertiser
import peers
from controllers import CONNECTABLE, CONNECTED, NOBODY, BareHost


class Ours:
    """InteropGAP: sends commands to it, and records its output."""

    def __init__(self, process):
        self.process, self.said, self.news, self.asked = process, [], asyncio.Event(), 0
        self.reader = asyncio.get_running_loop().create_task(self.read())

    @classmethod
    async def open(cls, program, spec, trace, *options):
        process = await asyncio.create_subprocess_exec(
            program, f'tcp:{spec}', trace, *options, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        ours = cls(process)
        ready = await ours.hears('ready')
        if ready is None:
            raise RuntimeError(f'{program} is not ready: {ours.said}')
        ours.address = parsed(ready['address'])
        return ours

    async def read(self):
        while line := await self.process.stdout.readline():
            self.said.append(json.loads(line))
            self.news.set()

    async def tell(self, order):
        """Sends the line; returns None, or the reason of the refusal."""
        since = len(self.said)
        self.process.stdin.write(f'{order}\n'.encode())
        answer = await self.hears(('done', 'refused'), since)
        return 'no answer' if answer is None else answer.get('why')

    @property
    def now(self):
        return len(self.said)

    async def hears(self, events, since=0, seconds=5, **values):
        """Its first object from there on of this kind and with these values."""
        events = (events,) if isinstance(events, str) else events
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            for each in self.said[since:]:
                if each['event'] in events and all(each.get(name) == value for name, value in values.items()):
                    return each
            self.news.clear()
            left = end - loop.time()
            if left <= 0 or self.reader.done():
                return None
            try:
                await asyncio.wait_for(self.news.wait(), left)
            except asyncio.TimeoutError:
                return None

    def heard(self, event, since=0, **values):
        return [each for each in self.said[since:] if each['event'] == event
                and all(each.get(name) == value for name, value in values.items())]

    async def close(self):
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), 5)
        except asyncio.TimeoutError:
            self.process.kill()
            return False
        return self.process.returncode == 0


def parsed(text):
    """F0:F1:F2:F3:F4:F5/random."""
    address, kind = text.split('/')
    return Address(address, Address.RANDOM_DEVICE_ADDRESS if kind == 'random' else Address.PUBLIC_DEVICE_ADDRESS)


def spelled(address):
    return address.to_string(with_type_qualifier=False) + ('/public' if address.is_public else '/random')


class GAP:
    def __init__(self, args, check):
        self.args, self.check = args, check
        self.part, self.ours, self.opened = '', None, []

    async def us(self, *options):
        self.trace = os.path.join(self.args.traces, f'gap-{self.part}.btsnoop')
        self.ours = await Ours.open(self.args.program, self.args.spec, self.trace, *options)
        return self.ours

    async def host(self, letter):
        own = Address(f'C{letter}:00:00:00:00:0{letter}', Address.RANDOM_DEVICE_ADDRESS)
        self.opened.append(await BareHost.open(self.args.spec, own))
        return self.opened[-1]

    async def end(self):
        """The checks at the end of every part."""
        if self.ours:
            self.check(f'{self.part}: ours ends well', await self.ours.close())
            checks.check = lambda title, got, want=True: self.check(f'{self.part}: {title}', got, want)
            checks.commands(self.trace)
        for host in self.opened:
            await host.close()
        self.ours, self.opened = None, []

    # Advertising

    async def part_advertise(self):
        """Other data while it is on, an end by time and by events, and one by a connection."""
        ours, b = await self.us(), await self.host('B')
        check = self.check
        await b.scans()

        async def heard(since, whole, is_legacy=True):
            """The data, or the data followed by the scan response."""
            report = await b.report(since, lambda each: each.address == bytes(ours.address) and each.data == whole
                                    and each.is_legacy_pdu == is_legacy)
            return report is not None
        first = ad.flags() + ad.short_services('180D') + ad.name('First')
        since = b.now
        check('advertise: on', await ours.tell('advertise name=First services=180D interval=30'), None)
        check('advertise: heard', await heard(since, first))
        since = b.now
        second = ad.flags() + ad.short_services('180F') + ad.manufacturer(bytes.fromhex('FFFF07')) + ad.name('Second')
        check('advertise: other data', await ours.tell('advertise name=Second services=180F manufacturer=FFFF07 interval=30'), None)
        check('advertise: other data heard', await heard(since, second))
        since = b.now
        await heard(since, second)
        check('advertise: the old data are gone', [each for each in b.reports(since, ours.address) if each.data == first], [])

        long = ad.flags() + ad.manufacturer(bytes.fromhex('FFFF') + bytes(180)) + ad.name('Long')
        since = b.now
        check('advertise: long', await ours.tell(
            f'advertise name=Long kind=nonconnectable interval=30 manufacturer=FFFF{"00" * 180}'), None)
        check('advertise: long, heard', await heard(since, long, is_legacy=False))

        since = ours.now
        check('advertise: for 300 ms', await ours.tell('advertise name=Short duration=300 interval=30'), None)
        check('advertise: its time is over', (await ours.hears('stopped', since) or {}).get('end'), 'the time is over')
        since = ours.now
        check('advertise: three times', await ours.tell('advertise name=Three events=3 interval=30'), None)
        # RootCanal says Advertising Timeout (0x3C) for Limit Reached: PEERS.md.
        check('advertise: its events are over', (await ours.hears('stopped', since) or {}).get('end') in
              ('all events have been sent', 'the time is over'))
        since = b.now
        check('advertise: silence', await b.report(since, lambda each: each.address == bytes(ours.address), 0.25), None)

    async def part_connected(self):
        """A connection ends advertising, which resumes beside the link, or does not."""
        ours, b, c = await self.us(), await self.host('B'), await self.host('C')
        check = self.check
        await ours.tell('advertise name=Again services=180D interval=30')
        mark, since = ours.now, b.now
        await b(b.connecting(ours.address))
        up = await b.event(CONNECTED, since)
        check('connected: up', up and int(up.status), 0)
        check('connected: told', bool(await ours.hears('connected', mark, peer=spelled(b.own), role='peripheral')))
        # As a peripheral it asks the link layer of a central that has the procedure. Vol 6, Part B, §5.1.7.
        since = b.now
        asking = asyncio.get_running_loop().create_task(ours.tell(f'parameters {spelled(b.own)} interval=50'))
        asked = await b.event(hci.HCI_LE_Remote_Connection_Parameter_Request_Event, since)
        check('connected: asks for parameters', asked and (asked.interval_min, asked.interval_max), (40, 40))
        if asked:
            await b(hci.HCI_LE_Remote_Connection_Parameter_Request_Reply_Command(
                connection_handle=up.connection_handle, interval_min=40, interval_max=40, max_latency=0, timeout=500,
                min_ce_length=0, max_ce_length=0))
        check('connected: is told that it has them', await asking, None)
        since = c.now
        await c.scans()
        check('connected: heard again beside the link', await c.report(
            since, lambda each: each.address == bytes(ours.address) and each.is_connectable) is not None)
        await c.stops_scanning()
        mark, since = ours.now, c.now
        await ours.tell('advertise name=Once services=180D interval=30 once')
        await c(c.connecting(ours.address))
        second = await c.event(CONNECTED, since)
        check('connected: two at once', second and int(second.status), 0)
        check('connected: told of both', bool(await ours.hears('connected', mark, peer=spelled(c.own), role='peripheral')))
        check('connected: over', (await ours.hears('stopped', mark) or {}).get('end'), 'a central connected')
        for host, end in ((b, up), (c, second)):
            if end:
                mark = ours.now
                await host(hci.HCI_Disconnect_Command(connection_handle=end.connection_handle, reason=0x13))
                check('connected: gone', bool(await ours.hears('disconnected', mark, peer=spelled(host.own), reason='19')))

    async def part_sets(self):
        """Three advertisements at once: each is received, changed, connected to and ended independently."""
        ours, b, c = await self.us(), await self.host('B'), await self.host('C')
        check = self.check
        await b.scans()
        long = ad.flags() + ad.manufacturer(bytes.fromhex('FFFF') + bytes(150)) + ad.name('Two')
        whole = {1: ad.flags() + ad.name('One'), 2: long, 3: ad.flags() + ad.name('Three')}
        for number, order in ((1, 'name=One'), (2, f'name=Two manufacturer=FFFF{"00" * 150}'),
                              (3, 'name=Three kind=nonconnectable')):
            check(f'sets: {number} on', await ours.tell(f'advertise set={number} {order} interval=30'), None)

        async def heard(data, since, host=b, seconds=2):
            return await host.report(since, lambda each: each.data == data, seconds)
        since = b.now
        for number, data in whole.items():
            found = await heard(data, since)
            check(f'sets: {number} heard', found and (found.is_legacy_pdu, found.is_connectable), (number != 2, number != 3))
        since = b.now
        check('sets: other data', await ours.tell('data set=3 name=Other'), None)
        check('sets: other data heard', await heard(ad.flags() + ad.name('Other'), since) is not None)
        check('sets: the first goes on', await heard(whole[1], since) is not None)
        mark, since = ours.now, b.now
        await ours.tell('stop-advertising set=3')
        check('sets: one ends', bool(await ours.hears('stopped', mark, set='3')))
        since = b.now
        check('sets: the second goes on', await heard(long, since) is not None)
        check('sets: that one is silent', await heard(ad.flags() + ad.name('Other'), since, seconds=0.2), None)
        mark, since = ours.now, c.now
        await c(c.connecting(ours.address))
        up = await c.event(CONNECTED, since)
        check('sets: a connection', up and int(up.status), 0)
        since = b.now
        check('sets: all go on beside it', all([await heard(whole[1], since), await heard(long, since)]))
        mark = ours.now
        check('sets: for 300 ms', await ours.tell('advertise set=4 name=Four duration=300 interval=30'), None)
        check('sets: its time is over', (await ours.hears('stopped', mark, set='4') or {}).get('end'), 'the time is over')
        since = b.now
        check('sets: and theirs is not', all([await heard(whole[1], since), await heard(long, since)]))

    # Scanning

    async def part_scan(self):
        """The advertisements of peer_advertiser.py, without and with scan responses; and only those with a service."""
        ours = await self.us()
        check = self.check
        hosts, statuses = await peer_advertiser.begin(self.args.spec)
        self.opened += hosts
        check('scan: the advertisers are on', set(statuses.values()), {0})

        async def seen(order, each, seconds=4, **values):
            since = ours.now
            await ours.tell(order)
            found = await ours.hears('advertisement', since, seconds, peer=f'{each.address}/random', **values)
            await asyncio.sleep(0.3)
            await ours.tell('stop-scan')
            return found, ours.heard('advertisement', since)
        legacy, scannable = ad.ADVERTISERS['legacy commands'], ad.ADVERTISERS['scannable']
        found, lines = await seen('scan passive', legacy)
        check('scan: passive', found and (found['name'], found['services']), ('', '180D,180F'))
        check('scan: passive, none asked', [each for each in lines if each['peer'].startswith(scannable.address) and each['name']], [])
        found, _ = await seen('scan', legacy, name='Legacy')
        check('scan: active', found and found['services'], f'180D,180F,{database.custom(0)}')
        found, lines = await seen('scan services=180F', legacy)
        check('scan: who names the service', {each['peer'] for each in lines}, {f'{legacy.address}/random'})
        overflow = ad.ADVERTISERS['overflow']
        found, lines = await seen('scan services=C007', overflow)
        check('scan: the overflow area', found and (found['services'], found['overflow']), ('', 'C007'))
        check('scan: nobody else', {each['peer'] for each in lines}, {f'{overflow.address}/random'})
        # 1001 and 3333 have one bit: a capture of an iPhone, as C007's.
        found, _ = await seen('scan services=3333', overflow, seconds=0.5)
        check('scan: another bit', found, None)

    # Connections

    async def part_central(self):
        """Two links at once, an unanswered request, parameters, and ends from both sides."""
        ours, a, c = await self.us(), await self.host('A'), await self.host('C')
        check = self.check
        nobody = spelled(NOBODY)
        mark = ours.now
        await ours.tell(f'connect {nobody}')
        await asyncio.sleep(0.2)
        check('central: nobody is not given up', ours.heard('unlinked', mark), [])
        await ours.tell(f'cancel {nobody}')
        check('central: cancelled', (await ours.hears('unlinked', mark, peer=nobody) or {}).get('code'), 'cancelled')

        ends = {}
        for host in (a, c):
            mark, since = ours.now, host.now
            await host.advertises(0, CONNECTABLE, ad.name('Peer'))
            await ours.tell(f'connect {spelled(host.own)} interval=30')
            check('central: linked', bool(await ours.hears('linked', mark, peer=spelled(host.own))))
            ends[host] = await host.event(CONNECTED, since)
            check('central: told', ends[host] and (int(ends[host].role), ends[host].connection_interval,
                                                   bytes(ends[host].peer_address)), (1, 24, bytes(ours.address)))
        if not all(ends.values()):
            return
        since = a.now
        await ours.tell(f'parameters {spelled(a.own)} interval=50')
        update = await a.event(hci.HCI_LE_Connection_Update_Complete_Event, since)
        check('central: parameters', update and update.connection_interval, 40)

        mark, since = ours.now, a.now
        check('central: quality', await ours.tell(f'quality {spelled(a.own)}'), None)
        found = await ours.hears('quality', mark)
        check('central: PHY', found and found['phys'], '2,2')
        check('central: RSSI', found and -127 <= int(found['rssi']) <= 20)
        update = await a.event(hci.HCI_LE_PHY_Update_Complete_Event, since)
        check('central: PHY told', update and (int(update.tx_phy), int(update.rx_phy)), (2, 2))

        # The peripheral asks over the link layer: §7.7.65.6.
        since = a.now
        await a(hci.HCI_LE_Connection_Update_Command(
            connection_handle=ends[a].connection_handle, connection_interval_min=80, connection_interval_max=80, max_latency=0,
            supervision_timeout=600, min_ce_length=0, max_ce_length=0))
        update = await a.event(hci.HCI_LE_Connection_Update_Complete_Event, since)
        check('central: the peripheral asks the link layer', update and (int(update.status), update.connection_interval), (0, 80))
        # And over L2CAP: Vol 3, Part A, §4.20.
        since = a.now
        a.transport.sink.on_packet(bytes(hci.HCI_AclDataPacket(
            connection_handle=ends[a].connection_handle, pb_flag=0, bc_flag=0, data_total_length=16,
            data=bytes.fromhex('0c000500' '12010800' '180018000000f401'))))
        update = await a.event(hci.HCI_LE_Connection_Update_Complete_Event, since)
        check('central: the peripheral asks over L2CAP', update and (int(update.status), update.connection_interval), (0, 24))

        mark, since = ours.now, a.now
        await ours.tell(f'disconnect {spelled(a.own)}')
        down = await a.event(hci.HCI_Disconnection_Complete_Event, since)
        check('central: ends a link', down and int(down.reason), 0x13)
        check('central: which one', bool(await ours.hears('disconnected', mark, peer=spelled(a.own), reason='22')))
        mark = ours.now
        await c(hci.HCI_Disconnect_Command(connection_handle=ends[c].connection_handle, reason=0x13))
        check('central: the other ends the other', bool(await ours.hears('disconnected', mark, peer=spelled(c.own), reason='19')))

    async def part_list(self):
        """Waits for several devices at once, through the Filter Accept List; one of them is absent."""
        ours, a, c = await self.us(), await self.host('A'), await self.host('C')
        check = self.check
        nobody = spelled(NOBODY)
        mark = ours.now
        await ours.tell(f'connect {nobody}')
        await ours.tell(f'connect {spelled(a.own)}')
        await asyncio.sleep(0.2)
        check('list: nobody yet', ours.heard('linked', mark), [])
        since = a.now
        await a.advertises(0, CONNECTABLE, ad.name('A'))
        check('list: who comes is linked', bool(await ours.hears('linked', mark, peer=spelled(a.own))))
        check('list: both ends', bool(await a.event(CONNECTED, since)))
        check('list: who does not is waited for', ours.heard('unlinked', mark), [])
        mark = ours.now
        await ours.tell(f'connect {spelled(c.own)},C9:99:99:99:99:98/random')
        await c.advertises(0, CONNECTABLE, ad.name('C'))
        check('list: the first of two', bool(await ours.hears('linked', mark, peer=spelled(c.own))))
        await ours.tell(f'cancel {nobody}')
        check('list: cancelled', (await ours.hears('unlinked', mark, peer=nobody) or {}).get('code'), 'cancelled')
        mark = ours.now
        await ours.tell(f'connect {nobody} timeout=300')
        check('list: for a time', (await ours.hears('unlinked', mark, peer=nobody) or {}).get('code'), 'timedOut')
        check('list: the links are up', ours.heard('disconnected'), [])
        await ours.close()
        check('list: the controller had a list', 0x2011 in checks.sent(self.trace))  # LE Add Device To Filter Accept List

    # Privacy

    async def part_peer_privacy(self):
        """A peer with resolvable private addresses, whose key we have, keeps its identity. Vol 3, Part C, §10.8."""
        ours, a = await self.us(), await self.host('A')
        check = self.check
        irk, identity = bytes(range(16)), Address('F2:00:00:00:00:0A', Address.RANDOM_DEVICE_ADDRESS)
        private = [Address.generate_private_address(irk) for _ in range(2)]
        await a.advertises(0, CONNECTABLE, ad.name('Private'), address=private[0], interval=64)
        mark = ours.now
        await ours.tell('scan')
        check('peer privacy: without the key', bool(await ours.hears('advertisement', mark, peer=spelled(private[0]))))
        check('peer privacy: the key', await ours.tell(f'identity {spelled(identity)} irk={irk[::-1].hex()}'), None)
        mark = ours.now
        found = await ours.hears('advertisement', mark, peer=spelled(identity))
        check('peer privacy: with the key', found and found['name'], 'Private')
        await a.status(a.disabling(0))
        await a.advertises(0, CONNECTABLE, ad.name('Moved'), address=private[1], interval=64)
        found = await ours.hears('advertisement', mark, peer=spelled(identity), name='Moved')
        check('peer privacy: another address, the same name', found is not None)
        check('peer privacy: no private address is a name', [each for each in ours.heard('advertisement', mark)
                                                             if parsed(each['peer']).is_resolvable], [])
        await ours.tell('stop-scan')
        mark, since = ours.now, a.now
        await ours.tell(f'connect {spelled(identity)}')
        check('peer privacy: connected by name', bool(await ours.hears('linked', mark, peer=spelled(identity))))
        check('peer privacy: both ends', bool(await a.event(CONNECTED, since)))

    async def part_our_privacy(self):
        """Our own addresses resolve with our key, and change; a controller with the key reports our identity."""
        irk = bytes(range(16, 32))
        ours = await self.us(f'private={irk[::-1].hex()}')
        b, c = await self.host('B'), await self.host('C')
        check = self.check
        identity = parsed((await ours.hears('ready'))['identity'])
        check('our privacy: the list', await c.status(
            hci.HCI_LE_Add_Device_To_Resolving_List_Command(
                peer_identity_address_type=identity.address_type, peer_identity_address=identity, peer_irk=irk,
                local_irk=bytes(16)), hci.HCI_LE_Set_Address_Resolution_Enable_Command(address_resolution_enable=1)), 0)
        check('our privacy: advertise', await ours.tell('advertise name=Hidden interval=30'), None)
        marks = b.now, c.now
        await b.scans()
        await c.scans()
        whole = ad.flags() + ad.name('Hidden')
        first = await b.report(marks[0], lambda each: each.data == whole)
        check('our privacy: a resolvable address', first and crypto.ah(irk, first.address[3:]) == first.address[:3])
        known = await c.report(marks[1], lambda each: each.data == whole)
        check('our privacy: resolved', known and known.address, bytes(identity))
        if not first:
            return
        second = await b.report(marks[0], lambda each: each.data == whole and each.address != first.address, 4)
        check('our privacy: it changes', second and crypto.ah(irk, second.address[3:]) == second.address[:3])
        await b.stops_scanning()
        # It may change once more before the connection request.
        since, mark = c.now, ours.now
        await c.stops_scanning()
        await c(c.connecting(identity))
        up = await c.event(CONNECTED, since, 4)
        check('our privacy: connected by identity', up and (int(up.status), bytes(up.peer_address)), (0, bytes(identity)))
        check('our privacy: told', bool(await ours.hears('connected', mark, peer=spelled(c.own))))


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('spec', metavar='HOST:PORT')
    parser.add_argument('--program', required=True)
    parser.add_argument('--traces', default='.', help='folder for btsnoop files of ours')
    parser.add_argument('--only', action='append', metavar='PART')
    args = parser.parse_args()
    check = peers.Checks()
    gap = GAP(args, check)
    for part in args.only or [name.removeprefix('part_') for name in vars(GAP) if name.startswith('part_')]:
        gap.part = part
        try:
            await asyncio.wait_for(getattr(gap, f'part_{part}')(), 30)
        except Exception as error:
            check(f'{part}: completed', repr(error), 'no error')
        await gap.end()
    sys.stdout.flush()
    os._exit(check.status)  # Bumble's tasks are not waited for


if __name__ == '__main__':
    asyncio.run(main())
