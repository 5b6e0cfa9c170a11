import Bindrune
import BindruneWire
import BindruneGAP
import BindruneHCI
import TestSupport
import Testing

@Suite("Host", .virtualTime, .hang) struct HostTests {
  @Test func theWholeWalk() async throws {
    let lab = Lab(), belt = try Belt()
    try await within {
      let peripheral = try await lab.host(belt.database)
      try await peripheral.advertiseFast()
      let central = try await lab.host()
      let heard = try await central.find("Belt")
      #expect(heard.address == (await peripheral.ownAddress))
      #expect(heard.data.serviceUUIDs == ["180D"] && heard.isConnectable)

      let link = try await central.connect(to: heard.address, .fast)
      let database = try await link.discoverAll()
      #expect(database.services.map(\.uuid) == ["1800", "180D"])
      #expect(await link.mtu == 517)
      #expect(try await link.read(belt.short) == [2])
      #expect(try await link.read(belt.long) == Belt.longValue)

      try await link.write([9, 8], to: belt.short)
      let reversed: [UInt8] = Belt.longValue.reversed()
      try await link.write(reversed, to: belt.long)
      #expect(try await link.read(belt.long) == reversed)
      #expect(try await link.writeWithoutResponse([7], to: belt.short))
      #expect(try await link.read(belt.short) == [7])
      await #expect(throws: BluetoothError.self) { try await link.read(belt.notifying) }

      let measurement = try #require(database.characteristic("2A37"))
      let events = await peripheral.events
      let sender = Task {
        for try await event in events {
          guard case .subscriptionChanged = event else { continue }
          for number in 0..<10 { #expect(await peripheral.notify([UInt8(number)], of: belt.notifying).isEmpty) }
          return
        }
      }
      var values: [[UInt8]] = []
      for try await value in link.notifications(of: measurement) {
        #expect(value.handle == belt.notifying && !value.isIndication)
        values.append(value.value)
        if values.count == 10 { break }
      }
      #expect(values == (0..<10).map { [$0] })
      try await sender.value

      try await link.disconnect()
      #expect(
        try await errorCode { () async throws(BluetoothError) in _ = try await link.read(belt.short) } == .disconnected)
      await central.close()
      await peripheral.close()
    }
  }

  @Test func indications() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let characteristic = try await link.discovered("2A05")
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      let reader = Task { () -> ReceivedValue? in
        for try await value in link.notifications(of: characteristic) { return value }
        return nil
      }
      guard case .subscriptionChanged(let client, _, .indication) = try await events.next() else {
        Issue.record("no subscription")
        return
      }
      try await peripheral.indicate([1, 2, 3], of: belt.indicating, on: client)
      let value = try await reader.value
      #expect(value?.handle == belt.indicating && value?.value == [1, 2, 3] && value?.isIndication == true)
      // The end of the reader ends the subscription.
      guard case .subscriptionChanged(client, _, []) = try await events.next() else {
        Issue.record("no end of the subscription")
        return
      }
      #expect(
        try await errorCode { () async throws(BluetoothError) in
          try await peripheral.indicate([4], of: belt.indicating, on: client)
        } == .invalidArgument)
    }
    await central.close()
    await peripheral.close()
  }

  /// One host is central of two hosts and peripheral of a third at once.
  @Test func severalLinksAndBothRoles() async throws {
    let lab = Lab(), belt = try Belt()
    try await within {
      let middle = try await lab.host(belt.database)
      let servers = [try await lab.host(belt.database), try await lab.host(belt.database)]
      let above = try await lab.host()
      try await middle.advertiseFast("Middle")
      for (index, server) in servers.enumerated() { try await server.advertiseFast("Server \(index)") }

      let down = try await above.connect(to: middle.ownAddress, .fast)
      let up = try await withThrowingTaskGroup(of: (Int, Link).self) { group in
        for (index, server) in servers.enumerated() {
          group.addTask { (index, try await middle.connect(to: server.ownAddress, .fast)) }
        }
        return try await group.reduce(into: [Int: Link]()) { $0[$1.0] = $1.1 }
      }
      // All at once, each to its own peer.
      for (index, link) in up { try await link.write([UInt8(index)], to: belt.short) }
      try await withThrowingTaskGroup(of: [UInt8].self) { group in
        for link in up.values { group.addTask { try await link.read(belt.long) } }
        group.addTask { try await down.read(belt.long) }
        for try await value in group { #expect(value == Belt.longValue) }
      }
      #expect(try await up[1]?.read(belt.short) == [1])
      #expect(try await down.read(belt.short) == [2])
      for host in [above, middle] + servers { await host.close() }
    }
  }

  @Test func openAlone() async throws {
    let host = try await BluetoothHost.open("sim", on: VirtualLoop.current)
    try await host.advertiseFast()
    await host.close()
    #expect(try await errorCode { () async throws(BluetoothError) in try await host.start() } == .notStarted)
    await #expect(throws: BluetoothError.self) { try await BluetoothHost.open("nonsense") }
  }

  @Test func nothingBeforeTheStart() async throws {
    let lab = Lab()
    let host = BluetoothHost(lab.radio.controller())
    let peer = PeerAddress(DeviceAddress(1), .public)
    #expect(
      try await errorCode { () async throws(BluetoothError) in _ = try await host.connect(to: peer) } == .notStarted)
    #expect(
      try await errorCode { () async throws(BluetoothError) in for try await _ in host.scan() {} } == .notStarted)
    // Two simultaneous calls share one start.
    async let first: Void = host.start()
    async let second: Void = host.start()
    try await first
    try await second
    await host.close()
  }

  @Test func tooMuchForAnAdvertisement() async throws {
    let host = try await Lab().host()
    var data = AdvertisingData(localName: "n")
    data.manufacturerData = [UInt8](repeating: 0xFF, count: 240)
    let long = data
    let code = try await errorCode { () async throws(BluetoothError) in try await host.advertise(long) }
    #expect(code == .invalidArgument)
    // A beacon has more room; `pack` shows its payloads before advertising.
    let beacon = try await host.pack(data, AdvertisingParameters(kind: .nonconnectable)).payloads
    #expect(beacon.advertising.count == 3 + 242 + 3 && !beacon.usesLegacyPDUs)
    try await host.advertise(data, AdvertisingParameters(kind: .nonconnectable))
    await host.close()
    #expect(
      try await errorCode { () async throws(BluetoothError) in
        _ = try await host.pack(AdvertisingData(localName: "n"))
      } == .notStarted)
  }

  /// Data of several PDUs, from advertiser to reader, and the end of their duration.
  @Test func aLongBeaconForAWhile() async throws {
    let lab = Lab()
    let (central, beacon) = (try await lab.host(), try await lab.host())
    var data = AdvertisingData(flags: nil)
    data.serviceData = (0..<4).map { .init(uuid: .short(0x1800 + $0), data: [UInt8](repeating: UInt8($0), count: 150)) }
    let events = await beacon.events
    var parameters = AdvertisingParameters(kind: .nonconnectable, interval: .every(.milliseconds(20)))
    try await beacon.advertise(data, parameters)
    try await within { [data] in
      for try await advertisement in central.scan() where advertisement.data == data {
        #expect(!advertisement.isConnectable && !advertisement.isTruncated)
        break
      }
    }
    parameters.duration = .milliseconds(50)
    try await beacon.advertise(data, parameters)
    try await within {
      for try await event in events {
        guard case .advertisingStopped(.first, let reason) = event else { continue }
        #expect(reason == .durationOver)
        break
      }
    }
    await central.close()
    await beacon.close()
  }

  /// An advertisement and its scan response are one device, however often they come.
  @Test func scanResponsesJoin() async throws {
    let lab = Lab()
    let (central, peripheral) = (try await lab.host(), try await lab.host())
    var data = AdvertisingData(localName: "A name that fills", serviceUUIDs: ["180D"])
    data.serviceData = [AdvertisingData.ServiceData(uuid: "180F", data: [87, 1, 2, 3, 4, 5])]
    data.manufacturerData = [0xFF, 0xFF, 1, 2, 3, 4, 5, 6]
    try await peripheral.advertise(data, AdvertisingParameters(interval: .every(.milliseconds(20))))
    try await within { [data] in
      var responses = 0
      for try await advertisement in central.scan() where responses > 0 || advertisement.hasScanResponse {
        #expect(advertisement.data == data)
        responses += 1
        if responses == 8 { break }
      }
    }
    await central.close()
    await peripheral.close()
  }

  /// Two callers at once, each with its own filter and its own handling of duplicates; the caller that looks for a
  /// service finds it in the overflow area.
  @Test("S32, S107: each caller is told what it looks for") func callersSideBySide() async throws {
    let lab = Lab()
    let (central, belt, phone) = (try await lab.host(), try await lab.host(), try await lab.host())
    try await belt.advertiseFast()
    var data = AdvertisingData(flags: 6)
    data.manufacturerData = OverflowArea(["1001"]).manufacturerData
    try await phone.advertise(data, AdvertisingParameters(interval: .every(.milliseconds(20))))
    let (beltAddress, phoneAddress) = (await belt.ownAddress, await phone.ownAddress)
    async let named = within {
      var count = 0
      for try await advertisement in central.scan(filter: ScanFilter(name: .prefix("Be"))) {
        #expect(
          advertisement.address == beltAddress && advertisement.name == "Belt" && advertisement.matchedOverflow == [])
        count += 1
        if count == 5 { break }
      }
    }
    async let hit = within {
      for try await advertisement in central.scan(services: ["3333"]) {
        #expect(advertisement.address == phoneAddress && advertisement.addressOnAir == phoneAddress)
        #expect(advertisement.matchedOverflow == ["3333"] && advertisement.isConnectable)
        break
      }
    }
    async let once = within {
      var peers: [PeerAddress] = []
      for try await advertisement in central.scan(ScanParameters(coalescesDuplicates: true)) {
        peers.append(advertisement.address)
        #expect(advertisement.matchedOverflow == [])
        if Set(peers) == [beltAddress, phoneAddress] { break }
      }
      // At most twice: once without the scan response.
      #expect(peers.count <= 4)
    }
    _ = try await (named, hit, once)
    let nonsense = ScanParameters(
      intent: .custom(interval: ScanInterval(.milliseconds(10)), window: ScanInterval(.milliseconds(20))))
    #expect(
      try await errorCode { () async throws(BluetoothError) in for try await _ in central.scan(nonsense) {} }
        == .invalidArgument)
    for host in [central, belt, phone] { await host.close() }
  }

  /// Both ends of a link report its changes, whichever end requested them.
  @Test func changesAreLinkEvents() async throws {
    let lab = Lab()
    var controller = ControllerConfiguration()
    controller.features.insert(.le2MPHY)
    let (central, peripheral) = (
      BluetoothHost(lab.radio.controller(controller)), BluetoothHost(lab.radio.controller(controller))
    )
    try await central.start()
    try await peripheral.start()
    try await peripheral.advertiseFast()
    let peer = await peripheral.ownAddress
    try await within {
      let link = try await central.connect(to: peer, .fast)
      let server = try #require(await peripheral.links.first)
      let ends = [await link.events, await server.events]
      try await link.updateParameters(.balanced)
      try await link.setPHYs(PHYPreferences(transmit: .le2M, receive: .le2M))
      let length = await link.dataLength
      #expect(length.transmitOctets > 27)
      for events in ends {
        var parameters: [ConnectionParameters] = [], phys: [LinkPHYs] = []
        var lengths: [LinkDataLength] = [], mtus: [Int] = []
        for try await event in events {
          switch event {
          case .parametersChanged(let new): parameters.append(new)
          case .physChanged(let new): phys.append(new)
          case .dataLengthChanged(let new): lengths.append(new)
          case .mtuChanged(let new): mtus.append(new)
          case .value, .servicesChanged, .rediscovered, .peerIdentified, .bearersChanged, .securityChanged:
            Issue.record("\(event)")
          }
          if !phys.isEmpty { break }
        }
        #expect(parameters == [.balanced] && phys == [LinkPHYs(transmit: .le2M, receive: .le2M)])
        #expect(lengths.last == length && mtus == [517])
      }
    }
    await central.close()
    await peripheral.close()
  }

  @Test func parametersChange() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    #expect(try await link.updateParameters(.balanced) == .balanced)
    #expect(await link.parameters == .balanced)
    let low = try await link.updateParameters(ConnectionLatency.low)
    #expect(ConnectionParameterRange(.low).contains(low))
    #expect(try await link.readRSSI().map { (-127...20).contains($0) } == true)
    #expect(try await link.readPHYs() == LinkPHYs())
    #expect(try await link.read(belt.short) == [2])
    await central.close()
    await #expect(throws: BluetoothError.self) { try await link.updateParameters(.fast) }
    await peripheral.close()
  }

  /// The other controller's features: page 0 for Bluetooth 5.4, and a further page if both have it. Vol 6, Part B, §4.6.
  @Test(arguments: [false, true]) func features(allPages: Bool) async throws {
    let lab = Lab(), belt = try Belt()
    var ours = ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)), theirs = ours
    theirs.address = DeviceAddress(0x0000_5E00_5302)
    theirs.features = [.leEncryption, .peripheralInitiatedFeaturesExchange]
    if allPages {
      (ours.version, theirs.version) = (CoreVersion(rawValue: 0x0E), CoreVersion(rawValue: 0x0E))
      ours.features.insert(.llExtendedFeatureSet)
      theirs.features.insert(.llExtendedFeatureSet)
      theirs.furtherFeatures = [0x02]
    }
    let central = BluetoothHost(lab.radio.controller(ours))
    let peripheral = BluetoothHost(lab.radio.controller(theirs), database: belt.database)
    let (ourFeatures, theirFeatures) = (ours.features, theirs.features)
    try await within {
      try await central.start()
      try await peripheral.start()
      try await peripheral.advertiseFast()
      let link = try await central.connect(to: peripheral.ownAddress, .fast)
      async let other = link.readFeatures()
      let features = try await link.readFeatures()
      #expect(features.page0 == theirFeatures && features[65] == allPages)
      #expect(try await other == features)
      #expect(try await link.readFeatures() == features)
      let server = try #require(await peripheral.links.first)
      #expect(try await server.readFeatures().page0 == ourFeatures)
      await peripheral.close()
      await #expect(throws: BluetoothError.self) { try await link.readFeatures() }
      await central.close()
    }
  }

  /// Commands past the host: each answers with its own type, or is refused by name. Vol 4, Part E, §7.4.6, §7.5.4,
  /// §7.8.22.
  @Test func commands() async throws {
    let lab = Lab(), host = try await lab.host(), (other, relay) = try await lab.relayedHost()
    try await within {
      #expect(await PeerAddress(try host.send(ReadBDADDR()).bdADDR, .public) == host.ownAddress)
      // FIPS-197, appendix B.
      let encrypt = LEEncrypt.with {
        $0.key = SecretNumber(0x2B7E_1516_28AE_D2A6_ABF7_1588_09CF_4F3C)
        $0.plaintextData = 0x3243_F6A8_885A_308D_3131_98A2_E037_0734
      }
      let cipher = try await host.send(encrypt) { answer, _ in answer.encryptedData }
      #expect(cipher == 0x3925_841D_02DC_09FB_DC11_8597_196A_0B32)
      let refused = await #expect(throws: BluetoothError.self) {
        try await host.send(ReadRSSI.with { $0.handle = ConnectionHandle(rawValue: 0x0EFF) })
      }
      #expect(refused?.code == .controller && refused?.status == .unknownConnectionIdentifier)
      #expect(refused?.operation == "send HCI_Read_RSSI")
      let reset = await #expect(throws: BluetoothError.self) { try await host.send(Reset()) }
      #expect(reset?.code == .invalidArgument)
      // Its octets are not there, or its handle: no packet.
      let data = LESetExtendedAdvertisingData.with {
        $0.advertisingHandle = AdvertisingHandle(0)
        $0.advertisingData = Octets(0, 3)
      }
      let empty = await #expect(throws: BluetoothError.self) { try await host.send(data) }
      let isOutside = empty?.diagnostics.contains("outside the source \"Advertising_Data\"")
      #expect(empty?.code == .invalidArgument && isOutside == true)
      let incomplete = await #expect(throws: BluetoothError.self) { try await host.send(ReadRSSI()) }
      #expect(incomplete?.code == .invalidArgument && incomplete?.operation == "send HCI_Read_RSSI")
      #expect(incomplete?.diagnostics.hasPrefix(#"The command is not complete, unset "Handle": "#) == true)
    }
    // Without an answer: cancelled, and at the end of the host.
    try await relay.fallSilent()
    let (first, second) = (Task { try await other.send(LERand()) }, Task { try await other.send(LERand()) })
    try await within { await relay.command("01 18 20") }
    first.cancel()
    await #expect { try await within { try await first.value } } throws: { ($0 as? BluetoothError)?.code == .cancelled }
    await other.close()
    await #expect { try await within { try await second.value } } throws: {
      ($0 as? BluetoothError)?.code == .notStarted
    }
    await host.close()
  }
}
