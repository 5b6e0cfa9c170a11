#!/usr/bin/env python3
"""Two raw HCI hosts that advertise all of advertisements.py: one with the commands of Bluetooth 4, one with sets.

peer_advertiser.py HOST:PORT [--run-for SECONDS]

Prints {"event":"ready"} once all is on the air.
"""
import argparse
import asyncio
import os
import sys

from bumble import hci
from bumble.hci import Address

import advertisements
import peers
from controllers import BareHost, Controllers


async def begin(spec):
    hosts = [await BareHost.open(spec, Address(f'F1:00:00:00:00:F{number}', Address.RANDOM_DEVICE_ADDRESS)) for number in (1, 2)]
    statuses = {}
    for number, (title, each) in enumerate(advertisements.ADVERTISERS.items()):
        address = Address(each.address, Address.RANDOM_DEVICE_ADDRESS)
        if each.is_legacy:
            statuses[title] = await hosts[0].status(
                hci.HCI_LE_Set_Random_Address_Command(random_address=address), Controllers.legacy_parameters(0, interval=64),
                hci.HCI_LE_Set_Advertising_Data_Command(advertising_data=each.data),
                hci.HCI_LE_Set_Scan_Response_Data_Command(scan_response_data=each.scan_response),
                hci.HCI_LE_Set_Advertising_Enable_Command(advertising_enable=1))
            continue
        statuses[title] = await hosts[1].advertises(
            number, each.properties, each.data or None, each.scan_response or None, address, sid=number, interval=64)
    return hosts, statuses


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('spec', metavar='HOST:PORT')
    parser.add_argument('--run-for', type=float, default=60)
    args = parser.parse_args()
    _hosts, statuses = await begin(args.spec)
    refused = {title: status for title, status in statuses.items() if status}
    if refused:
        sys.exit(f'refused: {refused}')
    peers.say('ready', advertisers=len(statuses))
    await asyncio.sleep(args.run_for)
    os._exit(0)  # Bumble's tasks are not waited for


if __name__ == '__main__':
    asyncio.run(main())
