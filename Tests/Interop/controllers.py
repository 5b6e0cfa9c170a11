#!/usr/bin/env python3
"""Checks of virtual controllers by raw hosts: Bumble's HCI without a host, three of them on one radio.

controllers.py HOST:PORT --of bindrune|rootcanal [--only PART]…
controllers.py --of bumble [--only PART]…

Every connection to the port is one controller; Bumble's are in this process, and only looked at. What is expected stands in
the Specification, Vol 4, Part E, unless said otherwise; where a controller is known to do something else, DEVIATIONS says
what, and that is expected of it: see PEERS.md. A line per check; exit status 0 all passed, 1 some failed, 2 nothing ran.
"""
import argparse
import asyncio
import logging
import os
import sys
from dataclasses import dataclass

from bumble import crypto, hci
from bumble.hci import Address
from bumble.transport import open_transport

import peers

NO_ANSWER = 'no answer'

# The expected deviations of each, by the name of the check.
DEVIATIONS = {
    'bindrune': {  # LE 1M is its only PHY, unless it is configured otherwise
        'connections: PHY': 0x01,
        'connections: PHY told': None,
    },
    'rootcanal': {
        'sets: anonymous, heard without an address': 0x00,
        'ends: after its events': (0x3C, 1, 3),  # Advertising Timeout for Limit Reached
        'connections: data length told': None,
        'privacy: as an identity': 0,
        'privacy: identities as such': [0, 0],
        'privacy: rotation': False,
    },
    'bumble': {},  # not listed: see PEERS.md
}


@dataclass
class Report:
    """A legacy or extended advertising report. §7.7.65.2, §7.7.65.13."""
    is_extended_event: bool
    is_connectable: bool
    is_scannable: bool
    is_scan_response: bool
    is_legacy_pdu: bool
    data_status: int
    address_type: int
    address: bytes
    sid: int
    data: bytes

    @classmethod
    def all(cls, event):
        if isinstance(event, hci.HCI_LE_Advertising_Report_Event):
            for each in event.reports:
                kind = int(each.event_type)
                yield cls(False, kind in (0, 1), kind in (0, 2), kind == 4, True, 0,
                          int(each.address_type), bytes(each.address), 0xFF, bytes(each.data))
        elif isinstance(event, hci.HCI_LE_Extended_Advertising_Report_Event):
            for each in event.reports:
                kind = int(each.event_type)
                yield cls(True, bool(kind & 1), bool(kind & 2), bool(kind & 8), bool(kind & 16), kind >> 5 & 3,
                          int(each.address_type), bytes(each.address), each.advertising_sid, bytes(each.data))


class BareHost:
    """HCI and no more: commands are answered or not, events are kept."""

    def __init__(self, transport, own):
        self.transport, self.own = transport, own
        self.events = []
        self.news = asyncio.Event()
        self.is_lost = False
        transport.source.set_packet_sink(self)

    @classmethod
    async def open(cls, spec, own):
        host = cls(await open_transport(f'tcp-client:{spec}'), own)
        await host(hci.HCI_Reset_Command())
        await host(hci.HCI_Set_Event_Mask_Command(event_mask=bytes.fromhex('ffffffffffffff3f')))
        await host(hci.HCI_LE_Set_Event_Mask_Command(le_event_mask=bytes.fromhex('ffffffff07000000')))
        await host(hci.HCI_LE_Set_Random_Address_Command(random_address=own))
        return host

    def on_packet(self, packet):
        self.events.append(hci.HCI_Packet.from_bytes(packet))
        self.news.set()

    def on_transport_lost(self):
        self.is_lost = True
        self.news.set()

    async def close(self):
        await self.transport.close()

    async def __call__(self, command):
        """Sends it; returns the status and the rest of the answer."""
        since = len(self.events)
        self.transport.sink.on_packet(bytes(command))

        def answers(event):
            return isinstance(event, (hci.HCI_Command_Complete_Event, hci.HCI_Command_Status_Event)) \
                and event.command_opcode == command.op_code
        answer = await self.until(answers, since, 1)
        if answer is None:
            return NO_ANSWER, None
        if isinstance(answer, hci.HCI_Command_Status_Event):
            return int(answer.status), None
        returned = answer.return_parameters
        return (returned.data[0] if isinstance(returned, hci.HCI_GenericReturnParameters) else int(returned.status)), returned

    async def status(self, *commands):
        """The first status that is not 0, or 0."""
        for command in commands:
            if status := (await self(command))[0]:
                return status
        return 0

    @property
    def now(self):
        """The position from which to search for new events."""
        return len(self.events)

    async def until(self, holds, since, seconds=2):
        """The first event from there on for which it holds; None after the time-out."""
        loop = asyncio.get_running_loop()
        end, place = loop.time() + seconds, since
        while True:
            for place in range(place, len(self.events)):
                if holds(self.events[place]):
                    return self.events[place]
            place = len(self.events)
            self.news.clear()
            left = end - loop.time()
            if left <= 0 or self.is_lost:
                return None
            try:
                await asyncio.wait_for(self.news.wait(), left)
            except asyncio.TimeoutError:
                return None

    async def event(self, kinds, since, seconds=2):
        return await self.until(lambda event: isinstance(event, kinds), since, seconds)

    async def report(self, since, holds, seconds=2):
        """The first report from there on for which it holds."""
        found = []

        def matches(event):
            found[:] = [each for each in Report.all(event) if holds(each)]
            return bool(found)
        return found[0] if await self.until(matches, since, seconds) else None

    def reports(self, since, address=None):
        return [each for event in self.events[since:] for each in Report.all(event)
                if address is None or each.address == bytes(address)]

    # Common commands of the checks

    async def advertises(self, handle, properties, data=None, scan_response=None, address=None, sid=0, interval=32,
                         duration=0, maximum_events=0, own=None, peer=None, policy=0):
        """Sets an advertising set up and starts it. §7.8.53, §7.8.52, §7.8.54, §7.8.55, §7.8.56. The first status."""
        own = hci.OwnAddressType.RANDOM if own is None else own
        peer = peer or Address.ANY
        commands = [hci.HCI_LE_Set_Extended_Advertising_Parameters_Command(
            advertising_handle=handle, advertising_event_properties=properties, primary_advertising_interval_min=interval,
            primary_advertising_interval_max=interval, primary_advertising_channel_map=7, own_address_type=own,
            peer_address_type=peer.address_type & 1, peer_address=peer, advertising_filter_policy=policy,
            advertising_tx_power=0x7F, primary_advertising_phy=1, secondary_advertising_max_skip=0,
            secondary_advertising_phy=1, advertising_sid=sid, scan_request_notification_enable=0)]
        if own & 1:
            commands.append(hci.HCI_LE_Set_Advertising_Set_Random_Address_Command(
                advertising_handle=handle, random_address=address or self.own))
        if data is not None:
            commands += self.pieces(handle, data)
        if scan_response is not None:
            commands.append(hci.HCI_LE_Set_Extended_Scan_Response_Data_Command(
                advertising_handle=handle, operation=3, fragment_preference=1, scan_response_data=scan_response))
        return await self.status(*commands, self.enabling(handle, duration, maximum_events))

    @staticmethod
    def pieces(handle, data):
        """251 octets each at most."""
        cut = [data[start:start + 251] for start in range(0, len(data), 251)] or [b'']
        operations = [3] if len(cut) == 1 else [1] + [0] * (len(cut) - 2) + [2]
        return [hci.HCI_LE_Set_Extended_Advertising_Data_Command(
            advertising_handle=handle, operation=operation, fragment_preference=1, advertising_data=piece)
            for operation, piece in zip(operations, cut)]

    @staticmethod
    def enabling(handle, duration=0, maximum_events=0):
        return hci.HCI_LE_Set_Extended_Advertising_Enable_Command(
            enable=1, advertising_handles=[handle], durations=[duration], max_extended_advertising_events=[maximum_events])

    @staticmethod
    def disabling(*handles):
        return hci.HCI_LE_Set_Extended_Advertising_Enable_Command(
            enable=0, advertising_handles=list(handles), durations=[0] * len(handles),
            max_extended_advertising_events=[0] * len(handles))

    async def scans(self, is_active=True, policy=0, filters_duplicates=0, duration=0, own=hci.OwnAddressType.RANDOM):
        """§7.8.64, §7.8.65."""
        return await self.status(
            hci.HCI_LE_Set_Extended_Scan_Parameters_Command(
                own_address_type=own, scanning_filter_policy=policy, scanning_phys=1, scan_types=[int(is_active)],
                scan_intervals=[16], scan_windows=[16]),
            hci.HCI_LE_Set_Extended_Scan_Enable_Command(
                enable=1, filter_duplicates=filters_duplicates, duration=duration, period=0))

    async def stops_scanning(self):
        return await self.status(
            hci.HCI_LE_Set_Extended_Scan_Enable_Command(enable=0, filter_duplicates=0, duration=0, period=0))

    def connecting(self, peer, policy=0, own=hci.OwnAddressType.RANDOM, interval=24, latency=0, timeout=500):
        """§7.8.66."""
        return hci.HCI_LE_Extended_Create_Connection_Command(
            initiator_filter_policy=policy, own_address_type=own, peer_address_type=peer.address_type & 1,
            peer_address=peer, initiating_phys=1, scan_intervals=[16], scan_windows=[16],
            connection_interval_mins=[interval], connection_interval_maxs=[interval], max_latencies=[latency],
            supervision_timeouts=[timeout], min_ce_lengths=[0], max_ce_lengths=[0])

    async def listed(self, *addresses):
        """Makes these the Filter Accept List. §7.8.15, §7.8.16."""
        return await self.status(hci.HCI_LE_Clear_Filter_Accept_List_Command(), *[
            hci.HCI_LE_Add_Device_To_Filter_Accept_List_Command(address_type=each.address_type & 1, address=each)
            for each in addresses])


CONNECTED = (hci.HCI_LE_Connection_Complete_Event, hci.HCI_LE_Enhanced_Connection_Complete_Event)
TERMINATED = hci.HCI_LE_Advertising_Set_Terminated_Event
NOBODY = Address('C9:99:99:99:99:99', Address.RANDOM_DEVICE_ADDRESS)
# Advertising event properties, §7.8.53.
CONNECTABLE, SCANNABLE, LEGACY, ANONYMOUS = 0x01, 0x02, 0x10, 0x20
DISALLOWED, INVALID = 0x0C, 0x12


def is_scan_timeout(event):
    """§7.7.65.17, which Bumble does not know by name."""
    return isinstance(event, hci.HCI_Event) and event.event_code == 0x3E and event.parameters[0] == 0x11


def name(text):
    return bytes([len(text) + 1, 0x09]) + text.encode()


def manufacturer(length):
    """One AD structure after another of company FFFF, `length` octets in all."""
    made = b''
    while length > len(made):
        size = min(length - len(made), 200)
        made += bytes([size - 1, 0xFF, 0xFF, 0xFF]) + bytes(number & 0xFF for number in range(size - 4))
    return made


class Controllers:
    """The parts: each has new controllers."""

    def __init__(self, spec, check):
        self.spec, self.check = spec, check
        self.opened = []

    async def host(self, letter):
        host = await BareHost.open(self.spec, Address(f'C{letter}:00:00:00:00:0{letter}', Address.RANDOM_DEVICE_ADDRESS))
        self.opened.append(host)
        return host

    async def close(self):
        for host in self.opened:
            await host.close()
        self.opened = []

    async def link(self, central, peripheral, handle=0, own=None, peer=None, data=name('link'), policy=0):
        """Both ends' Connection Complete."""
        marks = central.now, peripheral.now
        await peripheral.advertises(handle, CONNECTABLE, data)
        await central(central.connecting(peer or peripheral.own, policy))
        ends = await central.event(CONNECTED, marks[0]), await peripheral.event(CONNECTED, marks[1])
        return ends if all(ends) else None

    # Advertising sets and scanning

    async def part_sets(self):
        """Several advertising sets at once, with an address of their own each."""
        a, b = await self.host('A'), await self.host('B')
        check = self.check
        addresses = [Address(f'CA:00:00:00:00:F{number}', Address.RANDOM_DEVICE_ADDRESS) for number in range(4)]
        long = manufacturer(480)
        check('sets: legacy PDUs', await a.advertises(0, LEGACY | CONNECTABLE | SCANNABLE, name('legacy'),
                                                      name('response'), addresses[0]), 0)
        check('sets: connectable', await a.advertises(1, CONNECTABLE, manufacturer(100), None, addresses[1], sid=3), 0)
        check('sets: long', await a.advertises(2, 0, long, None, addresses[2], sid=7), 0)
        check('sets: scannable', await a.advertises(3, SCANNABLE, None, manufacturer(150), addresses[3], sid=9), 0)
        since = b.now
        check('sets: scan', await b.scans(), 0)

        found = await b.report(since, lambda each: each.address == bytes(addresses[0]) and not each.is_scan_response)
        check('sets: legacy PDUs heard', found and (found.is_connectable, found.is_scannable, found.is_legacy_pdu, found.data),
              (True, True, True, name('legacy')))
        found = await b.report(since, lambda each: each.address == bytes(addresses[0]) and each.is_scan_response)
        check('sets: scan response of legacy PDUs', found and (found.is_legacy_pdu, found.data), (True, name('response')))
        found = await b.report(since, lambda each: each.address == bytes(addresses[1]))
        check('sets: connectable heard', found and (found.is_connectable, found.is_scannable, found.is_legacy_pdu, found.sid,
                                                    found.data_status, found.data), (True, False, False, 3, 0, manufacturer(100)))
        found = await b.report(since, lambda each: each.address == bytes(addresses[3]) and each.is_scan_response)
        check('sets: scan response', found and (found.is_legacy_pdu, found.data), (False, manufacturer(150)))
        await b.report(since, lambda each: each.address == bytes(addresses[2]) and each.data_status == 0)
        check('sets: long data in reports', self.chains(b.reports(since, addresses[2]), long), True)
        check('sets: its identifier', {each.sid for each in b.reports(since, addresses[2])}, {7})

        # Data may change while a set is on: §7.8.54.
        since = b.now
        check('sets: other data while on', await a.status(*a.pieces(1, name('changed'))), 0)
        check('sets: other data heard', await b.report(
            since, lambda each: each.address == bytes(addresses[1]) and each.data == name('changed')) is not None)
        check('sets: an address while a connectable set is on', await a.status(
            hci.HCI_LE_Set_Advertising_Set_Random_Address_Command(advertising_handle=1, random_address=addresses[0])), DISALLOWED)
        check('sets: pieces while on', await a.status(a.pieces(1, manufacturer(300))[0]), DISALLOWED)
        check('sets: removed while on', await a.status(hci.HCI_LE_Remove_Advertising_Set_Command(advertising_handle=1)), DISALLOWED)
        check('sets: one off', await a.status(a.disabling(1)), 0)
        since = b.now
        await b.report(since, lambda each: each.address == bytes(addresses[0]))
        check('sets: the others are on', (b.reports(since, addresses[1]), bool(b.reports(since, addresses[0]))), ([], True))
        check('sets: removed', await a.status(hci.HCI_LE_Remove_Advertising_Set_Command(advertising_handle=1)), 0)
        check('sets: removed twice', await a.status(hci.HCI_LE_Remove_Advertising_Set_Command(advertising_handle=1)), 0x42)
        check('sets: anonymous', await a.advertises(4, ANONYMOUS, name('nobody'), own=hci.OwnAddressType.PUBLIC), 0)
        since = b.now
        found = await b.report(since, lambda each: each.data == name('nobody'))
        check('sets: anonymous, heard without an address', found and found.address_type, 0xFF)
        check('sets: all off', await a.status(a.disabling(), hci.HCI_LE_Clear_Advertising_Sets_Command()), 0)
        check('sets: none without a set', await a.status(a.enabling(0)), 0x42)

    @staticmethod
    def chains(reports, whole):
        """Whether a chain of reports, from one that is whole or ends another, has all of the data; what it has if not."""
        data, seen = b'', []
        for each in reports:
            data += each.data
            if each.data_status != 1:
                seen.append((each.data_status, data))
                data = b''
        # The first may have been begun before the scan.
        return any(each == (0, whole) for each in seen) or [(status, len(data)) for status, data in seen]

    async def part_ends(self):
        """Advertising that the controller ends: §7.7.65.18, §7.8.56."""
        a, b = await self.host('A'), await self.host('B')
        check = self.check
        since = a.now
        check('ends: duration', await a.advertises(0, 0, name('short'), duration=20), 0)
        end = await a.event(TERMINATED, since)
        check('ends: after its duration', end and (int(end.status), end.advertising_handle), (0x3C, 0))
        since, heard = a.now, b.now
        await b.scans()
        check('ends: events', await a.advertises(1, 0, name('three'), maximum_events=3, sid=2), 0)
        end = await a.event(TERMINATED, since)
        check('ends: after its events', end and (int(end.status), end.advertising_handle,
                                                 end.num_completed_extended_advertising_events), (0x43, 1, 3))
        # The air may lose one, and a scanner that changes its channel meanwhile may report one twice.
        await asyncio.sleep(0.05)
        over = b.now
        await asyncio.sleep(0.15)
        check('ends: heard, and then no more', [any(each.data == name('three') for each in b.reports(since, a.own))
                                                for since in (heard, over)], [True, False])
        check('ends: off', await a.status(a.disabling()), 0)
        await b.stops_scanning()
        since = b.now
        check('ends: scan', await b.scans(duration=20), 0)
        check('ends: scan time-out', await b.until(is_scan_timeout, since, 1) is not None)

    async def part_scan(self):
        """Active and passive, duplicates, the kinds of legacy PDUs: §7.8.10, §7.8.11, §7.8.5."""
        a, b = await self.host('A'), await self.host('B')
        check = self.check
        check('scan: legacy advertising', await a.status(
            self.legacy_parameters(0), hci.HCI_LE_Set_Advertising_Data_Command(advertising_data=name('AA')),
            hci.HCI_LE_Set_Scan_Response_Data_Command(scan_response_data=name('RR')),
            hci.HCI_LE_Set_Advertising_Enable_Command(advertising_enable=1)), 0)
        since = b.now
        check('scan: legacy', await self.legacy_scan(b, active=1), 0)
        found = await b.report(since, lambda each: each.address == bytes(a.own) and each.is_scan_response)
        check('scan: response', found and found.data, name('RR'))
        check('scan: legacy reports', {each.is_extended_event for each in b.reports(since)}, {False})
        check('scan: mixing extended advertising', await a.status(a.enabling(0)), DISALLOWED)
        check('scan: mixing extended scanning', await b.scans(), DISALLOWED)
        await b(hci.HCI_LE_Set_Scan_Enable_Command(le_scan_enable=0, filter_duplicates=0))
        since = b.now
        await self.legacy_scan(b, active=0)
        await asyncio.sleep(0.25)
        heard = b.reports(since, a.own)
        check('scan: passive', (len(heard) > 1, [each.data for each in heard if each.is_scan_response]), (True, []))
        await b(hci.HCI_LE_Set_Scan_Enable_Command(le_scan_enable=0, filter_duplicates=0))
        await self.legacy_scan(b, active=0, filter_duplicates=1)
        await asyncio.sleep(0.3)
        since = b.now
        await asyncio.sleep(0.3)
        check('scan: no duplicates', len(b.reports(since, a.own)), 0)
        for title, kind, want in (('scannable', 2, (False, True)), ('nonconnectable', 3, (False, False))):
            await b(hci.HCI_LE_Set_Scan_Enable_Command(le_scan_enable=0, filter_duplicates=0))
            await a.status(hci.HCI_LE_Set_Advertising_Enable_Command(advertising_enable=0), self.legacy_parameters(kind, 160),
                           hci.HCI_LE_Set_Advertising_Enable_Command(advertising_enable=1))
            since = b.now
            await self.legacy_scan(b, active=1)
            found = await b.report(since, lambda each: each.address == bytes(a.own) and not each.is_scan_response, 1)
            check(f'scan: {title}', found and (found.is_connectable, found.is_scannable), want)

    @staticmethod
    def legacy_parameters(kind, interval=32, peer=Address.ANY):
        return hci.HCI_LE_Set_Advertising_Parameters_Command(
            advertising_interval_min=interval, advertising_interval_max=interval, advertising_type=kind,
            own_address_type=hci.OwnAddressType.RANDOM, peer_address_type=peer.address_type & 1, peer_address=peer,
            advertising_channel_map=7, advertising_filter_policy=0)

    @staticmethod
    async def legacy_scan(host, active, policy=0, filter_duplicates=0):
        return await host.status(
            hci.HCI_LE_Set_Scan_Parameters_Command(
                le_scan_type=active, le_scan_interval=16, le_scan_window=16, own_address_type=hci.OwnAddressType.RANDOM,
                scanning_filter_policy=policy),
            hci.HCI_LE_Set_Scan_Enable_Command(le_scan_enable=1, filter_duplicates=filter_duplicates))

    async def part_kinds(self):
        """Invalid sets, and mixing in the other order: §7.8.53, §3.1.1."""
        a = await self.host('A')
        check = self.check
        check('kinds: connectable and scannable', await a.advertises(0, CONNECTABLE | SCANNABLE), INVALID)
        check('kinds: legacy PDUs that nobody knows', await a.advertises(0, LEGACY | CONNECTABLE), INVALID)
        check('kinds: extended', await a.advertises(0, CONNECTABLE, name('e')), 0)
        check('kinds: mixing legacy advertising', await a.status(self.legacy_parameters(0)), DISALLOWED)
        check('kinds: mixing legacy scanning', await self.legacy_scan(a, active=0), DISALLOWED)
        status, size = await a(hci.HCI_LE_Read_Maximum_Advertising_Data_Length_Command())
        check('kinds: longest data', status == 0 and 31 <= size.max_advertising_data_length <= 1650)
        status, count = await a(hci.HCI_LE_Read_Number_Of_Supported_Advertising_Sets_Command())
        check('kinds: number of sets', status == 0 and 1 <= count.num_supported_advertising_sets <= 240)

    # The Filter Accept List

    async def part_list(self):
        """§7.8.14 to §7.8.17; Vol 6, Part B, §4.3."""
        a, b, c = await self.host('A'), await self.host('B'), await self.host('C')
        check = self.check
        status, size = await b(hci.HCI_LE_Read_Filter_Accept_List_Size_Command())
        check('list: size', status == 0 and size.filter_accept_list_size > 1)
        await a.advertises(0, CONNECTABLE, name('A'))
        await c.advertises(0, CONNECTABLE, name('C'))
        check('list: two, one of them absent', await b.listed(NOBODY, a.own), 0)
        since = b.now
        check('list: scan', await b.scans(is_active=False, policy=1), 0)
        await b.report(since, lambda each: each.address == bytes(a.own))
        await asyncio.sleep(0.15)
        check('list: only who is on it is reported', (bool(b.reports(since, a.own)), len(b.reports(since, c.own))), (True, 0))
        check('list: changed while it is used', await b.status(hci.HCI_LE_Clear_Filter_Accept_List_Command()), DISALLOWED)
        await b.stops_scanning()

        marks = b.now, a.now
        check('list: connect', await b.status(b.connecting(Address.ANY, policy=1)), 0)
        ends = await b.event(CONNECTED, marks[0]), await a.event(CONNECTED, marks[1])
        check('list: who was there', ends[0] and (int(ends[0].status), bytes(ends[0].peer_address)), (0, bytes(a.own)))
        check('list: told on both sides', all(ends))
        since = b.now
        check('list: connect to who is absent', await b.status(
            *[hci.HCI_LE_Remove_Device_From_Filter_Accept_List_Command(address_type=1, address=a.own)],
            b.connecting(Address.ANY, policy=1)), 0)
        check('list: changed while connecting', await b.status(hci.HCI_LE_Clear_Filter_Accept_List_Command()), DISALLOWED)
        check('list: nobody', await b.event(CONNECTED, since, 0.3), None)
        check('list: cancel', await b.status(hci.HCI_LE_Create_Connection_Cancel_Command()), 0)
        end = await b.event(CONNECTED, since)
        check('list: cancelled', end and int(end.status), 0x02)
        check('list: cleared', await b.status(hci.HCI_LE_Clear_Filter_Accept_List_Command()), 0)

        # The advertiser's: Vol 6, Part B, §4.3.2.
        check('list: an advertiser for one', await c.status(c.disabling(0), hci.HCI_LE_Clear_Filter_Accept_List_Command(),
              hci.HCI_LE_Add_Device_To_Filter_Accept_List_Command(address_type=1, address=b.own)), 0)
        check('list: its set', await c.advertises(0, CONNECTABLE, name('C'), policy=2), 0)
        since = a.now
        await a(a.connecting(c.own))
        check('list: another does not get through', await a.event(CONNECTED, since, 0.3), None)
        await a(hci.HCI_LE_Create_Connection_Cancel_Command())
        since = b.now
        await b(b.connecting(c.own))
        end = await b.event(CONNECTED, since)
        check('list: that one does', end and (int(end.status), bytes(end.peer_address)), (0, bytes(c.own)))

    # Connections

    async def part_connections(self):
        """§7.8.66, §7.8.13, §7.7.65.10, §7.7.5."""
        a, b, c = await self.host('A'), await self.host('B'), await self.host('C')
        check = self.check
        since = b.now
        check('connections: to nobody', await b.status(b.connecting(NOBODY)), 0)
        check('connections: a second at once', await b.status(b.connecting(a.own)), DISALLOWED)
        check('connections: cancel', await b.status(hci.HCI_LE_Create_Connection_Cancel_Command()), 0)
        end = await b.event(CONNECTED, since)
        check('connections: cancelled', end and int(end.status), 0x02)
        check('connections: cancel of none', await b.status(hci.HCI_LE_Create_Connection_Cancel_Command()), DISALLOWED)

        own = Address('CA:00:00:00:00:F7', Address.RANDOM_DEVICE_ADDRESS)
        await a.advertises(5, CONNECTABLE, name('own'), address=own)
        marks = a.now, b.now
        await b(b.connecting(own))
        up = await b.event(CONNECTED, marks[1]), await a.event(CONNECTED, marks[0])
        end = await a.event(TERMINATED, marks[0])
        check('connections: up', all(up) and [int(each.status) for each in up], [0, 0])
        if not all(up):
            return
        check('connections: the enhanced event', {type(each).__name__ for each in up},
              {'HCI_LE_Enhanced_Connection_Complete_Event'})
        check('connections: roles', [int(each.role) for each in up], [0, 1])
        check('connections: peers', [bytes(each.peer_address) for each in up], [bytes(own), bytes(b.own)])
        check('connections: parameters', [(each.connection_interval, each.peripheral_latency, each.supervision_timeout)
                                          for each in up], [(24, 0, 500)] * 2)
        check('connections: the set has ended', end and (int(end.status), end.advertising_handle, end.connection_handle),
              (0, 5, up[1].connection_handle))
        since = b.now
        await b.scans(is_active=False)
        check('connections: and is silent', await b.report(since, lambda each: each.address == bytes(own), 0.25), None)
        check('connections: on again', await a.status(a.enabling(5)), 0)
        check('connections: and heard beside the link', await b.report(
            since, lambda each: each.address == bytes(own)) is not None)
        await b.stops_scanning()

        second = await self.link(b, c)
        check('connections: a second link', second and [int(each.status) for each in second], [0, 0])
        if second:
            check('connections: handles', len({up[0].connection_handle, second[0].connection_handle}), 2)
        for host, ends, title in ((b, up[0], 'central'), (a, up[1], 'peripheral')):
            status, answer = await host(hci.HCI_Read_RSSI_Command(handle=ends.connection_handle))
            check(f'connections: RSSI, {title}', status == 0 and -127 <= answer.rssi <= 127)
        since = b.now
        check('connections: PHY', await b.status(hci.HCI_LE_Set_PHY_Command(
            connection_handle=up[0].connection_handle, all_phys=0, tx_phys=2, rx_phys=2, phy_options=0)), 0)
        end = await b.event(hci.HCI_LE_PHY_Update_Complete_Event, since)
        check('connections: PHY told', end and (int(end.status), int(end.tx_phy), int(end.rx_phy)), (0, 2, 2))
        since = b.now
        check('connections: data length', await b.status(hci.HCI_LE_Set_Data_Length_Command(
            connection_handle=up[0].connection_handle, tx_octets=60, tx_time=600)), 0)
        end = await b.event(hci.HCI_LE_Data_Length_Change_Event, since, 1)
        check('connections: data length told', end and end.max_tx_octets, 60)
        marks = a.now, b.now
        await b(hci.HCI_Disconnect_Command(connection_handle=up[0].connection_handle, reason=0x13))
        down = await b.event(hci.HCI_Disconnection_Complete_Event, marks[1]), \
            await a.event(hci.HCI_Disconnection_Complete_Event, marks[0])
        check('connections: reasons', [each and int(each.reason) for each in down], [0x16, 0x13])

    async def part_parameters(self):
        """§7.8.18, §7.8.31, §7.8.32, §7.7.65.6."""
        a, b = await self.host('A'), await self.host('B')
        check = self.check
        up = await self.link(b, a)
        if not check('parameters: up', bool(up)):
            return

        def update(handle, interval):
            return hci.HCI_LE_Connection_Update_Command(
                connection_handle=handle, connection_interval_min=interval, connection_interval_max=interval, max_latency=1,
                supervision_timeout=600, min_ce_length=0, max_ce_length=0)

        async def told(marks, title, want):
            ends = await b.event(hci.HCI_LE_Connection_Update_Complete_Event, marks[1]), \
                await a.event(hci.HCI_LE_Connection_Update_Complete_Event, marks[0])
            check(title, [each and (int(each.status), each.connection_interval, each.peripheral_latency,
                                    each.supervision_timeout) for each in ends], [want, want])
        marks = a.now, b.now
        check("parameters: central's", await b.status(update(up[0].connection_handle, 40)), 0)
        await told(marks, "parameters: central's, told", (0, 40, 1, 600))
        # Until the features have been exchanged the peripheral may not ask: Vol 6, Part B, §5.1.7.
        since = a.now
        await a(hci.HCI_LE_Read_Remote_Features_Command(connection_handle=up[1].connection_handle))
        await a.event(hci.HCI_LE_Read_Remote_Features_Complete_Event, since)
        marks = a.now, b.now
        check("parameters: peripheral's", await a.status(update(up[1].connection_handle, 80)), 0)
        asked = await b.event(hci.HCI_LE_Remote_Connection_Parameter_Request_Event, marks[1])
        check("parameters: peripheral's, asked", asked and (asked.interval_min, asked.interval_max, asked.max_latency,
                                                            asked.timeout), (80, 80, 1, 600))
        if not asked:
            return
        check("parameters: peripheral's, granted", await b.status(hci.HCI_LE_Remote_Connection_Parameter_Request_Reply_Command(
            connection_handle=up[0].connection_handle, interval_min=80, interval_max=80, max_latency=1, timeout=600,
            min_ce_length=0, max_ce_length=0)), 0)
        await told(marks, "parameters: peripheral's, told", (0, 80, 1, 600))
        marks = a.now, b.now
        await a(update(up[1].connection_handle, 100))
        if await b.event(hci.HCI_LE_Remote_Connection_Parameter_Request_Event, marks[1]):
            check("parameters: peripheral's, refused", await b.status(
                hci.HCI_LE_Remote_Connection_Parameter_Request_Negative_Reply_Command(
                    connection_handle=up[0].connection_handle, reason=0x3B)), 0)
        end = await a.event(hci.HCI_LE_Connection_Update_Complete_Event, marks[0])
        check("parameters: peripheral's, refusal told", end and int(end.status), 0x3B)

    # Privacy

    async def part_privacy(self):
        """Resolving lists: §7.8.38 to §7.8.45, §7.8.77; Vol 6, Part B, §6."""
        a, b, c = await self.host('A'), await self.host('B'), await self.host('C')
        check = self.check
        irks = {a: bytes(range(16)), b: bytes(range(16, 32))}
        identities = {}
        for host in irks:
            _, answer = await host(hci.HCI_Read_BD_ADDR_Command())
            identities[host] = Address(bytes(answer.bd_addr), Address.PUBLIC_DEVICE_ADDRESS)
        status, size = await a(hci.HCI_LE_Read_Resolving_List_Size_Command())
        if not check('privacy: size', status == 0 and size.resolving_list_size > 1):
            return

        def added(of, peer):
            return hci.HCI_LE_Add_Device_To_Resolving_List_Command(
                peer_identity_address_type=0, peer_identity_address=identities[peer], peer_irk=irks[peer], local_irk=irks[of])
        enabled = hci.HCI_LE_Set_Address_Resolution_Enable_Command(address_resolution_enable=1)
        for host, peer in ((a, b), (b, a)):
            check('privacy: list', await host.status(
                added(host, peer), hci.HCI_LE_Set_Resolvable_Private_Address_Timeout_Command(rpa_timeout=1), enabled), 0)
        # Own address type 2: resolvable, by the resolving list's entry of the peer.
        check('privacy: advertising', await a.advertises(
            0, CONNECTABLE, name('private'), own=hci.OwnAddressType.RESOLVABLE_OR_PUBLIC, peer=identities[b]), 0)
        check('privacy: listed while advertising', await a.status(hci.HCI_LE_Clear_Resolving_List_Command()), DISALLOWED)
        since, others = b.now, c.now
        await b.scans(is_active=False)
        await c.scans(is_active=False)
        found = await b.report(since, lambda each: each.data == name('private'))
        check('privacy: the identity is reported', found and found.address, bytes(identities[a]))
        check('privacy: as an identity', found and found.address_type, 2)
        found = await c.report(others, lambda each: each.data == name('private'))
        check('privacy: without the key the address resolves with it', found and found.address_type == 1
              and found.address[5] >> 6 == 1 and crypto.ah(irks[a], found.address[3:]) == found.address[:3])
        await b.stops_scanning()
        marks = a.now, b.now
        check('privacy: connect to the identity', await b.status(
            b.connecting(identities[a], own=hci.OwnAddressType.RESOLVABLE_OR_PUBLIC)), 0)
        up = await b.event(CONNECTED, marks[1]), await a.event(CONNECTED, marks[0])
        if not check('privacy: up', all(up) and [int(each.status) for each in up], [0, 0]):
            return
        check('privacy: identities', [bytes(each.peer_address) for each in up], [bytes(identities[a]), bytes(identities[b])])
        check('privacy: identities as such', [int(each.peer_address_type) for each in up], [2, 2])
        for title, end, irk in (('central', up[0], irks[a]), ('peripheral', up[1], irks[b])):
            address = bytes(getattr(end, 'peer_resolvable_private_address', bytes(6)))
            check(f"privacy: the peer's private address, {title}", crypto.ah(irk, address[3:]) == address[:3] and any(address))
        status, answer = await b(hci.HCI_LE_Set_Privacy_Mode_Command(
            peer_identity_address_type=0, peer_identity_address=identities[a], privacy_mode=1))
        check('privacy: mode', status, 0)
        check('privacy: rotation', await self.rotates(a, c), True)

    @staticmethod
    async def rotates(advertiser, scanner):
        """With a time-out of one second the address changes."""
        await advertiser.status(advertiser.enabling(0))
        since = scanner.now
        first = await scanner.report(since, lambda each: each.data == name('private'))
        return bool(first) and await scanner.report(
            since, lambda each: each.data == name('private') and each.address != first.address, 2.5) is not None


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('spec', metavar='HOST:PORT', nargs='?')
    parser.add_argument('--of', choices=DEVIATIONS, required=True)
    parser.add_argument('--only', action='append', metavar='PART')
    args = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL + 1)  # Bumble's own words about commands it does not know
    if args.of == 'bumble':
        radio = peers.Radio(legacy_only=False)
        server = await asyncio.get_running_loop().create_server(lambda: peers.ControllerPort(radio, None), '127.0.0.1', 0)
        args.spec = '127.0.0.1:%d' % server.sockets[0].getsockname()[1]
    plain, deviations = peers.Checks(), DEVIATIONS[args.of]

    def check(title, got, want=True):
        """Whether it conforms to the Specification."""
        if title in deviations:
            plain(f'{title} (a known deviation)', got, deviations[title])
            return False
        return plain(title, got, want)

    controllers = Controllers(args.spec, check)
    parts = {name.removeprefix('part_'): getattr(controllers, name) for name in vars(Controllers) if name.startswith('part_')}
    for part in args.only or parts:
        try:
            await asyncio.wait_for(parts[part](), 30)
        except Exception as error:
            plain(f'{part}: completed', repr(error), 'no error')
        await controllers.close()
    sys.stdout.flush()
    os._exit(plain.status)  # Bumble's tasks are not waited for


if __name__ == '__main__':
    asyncio.run(main())
