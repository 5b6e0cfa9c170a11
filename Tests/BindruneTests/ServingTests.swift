import Bindrune
import BindruneGATT
import Synchronization
import TestSupport
import Testing

@Suite("Serving", .virtualTime, .hang) struct ServingTests {
  /// A set that the controller does not begin again after a connection: the readers of events learn it, for no call of
  /// theirs waits.
  @Test func aSetThatDoesNotGoOn() async throws {
    let lab = Lab(), (peripheral, relay) = try await lab.relayedHost(), central = try await lab.host()
    try await peripheral.advertiseFast()
    var events = await peripheral.events.makeAsyncIterator()
    // Commands are lost from now on; what the controller reports still comes.
    try await relay.fallSilent()
    let link = Task { try await central.connect(to: await peripheral.ownAddress) }
    while let event = try await events.next() {
      guard case .advertisingStopped(let set, let end) = event else { continue }
      #expect(set == .first && end == .terminated(.lmpOrLLResponseTimeout))
      break
    }
    link.cancel()
    _ = await link.result
  }
  /// Every listener receives every event; the first answer counts, the host refuses later ones.
  @Test func severalListeners() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let listeners = await [peripheral.events, peripheral.events].map { events in
      Task {
        var heard: [String] = []
        for try await event in events {
          switch event {
          case .readRequested(let request):
            heard.append("read")
            // One of the two listeners is the first.
            try? await request.respond([1, 2, 3])
            let twice = await #expect(throws: BluetoothError.self) { try await request.respond([4]) }
            #expect(twice?.code == .invalidArgument)
            await #expect(throws: BluetoothError.self) { try await request.reject(.readNotPermitted) }
          case .writeRequested(let request):
            heard.append("write \(request.value)")
            if request.value == [0] {
              try? await request.reject(.valueNotAllowed)
            } else {
              try? await request.accept()
            }
            await #expect(throws: BluetoothError.self) { try await request.accept() }
          case .written(_, _, let value, _): heard.append("written \(value)")
          case .disconnected: return heard
          default: break
          }
        }
        return heard
      }
    }
    #expect(try await link.read(belt.dynamic) == [1, 2, 3])
    try await link.write([1], to: belt.dynamic)
    let refused = try await within { () -> BluetoothError? in
      do throws(BluetoothError) { try await link.write([0], to: belt.dynamic) } catch { return error }
      return nil
    }
    #expect(refused?.attError == .valueNotAllowed)
    try await link.write([7], to: belt.short)
    await peripheral.setValue([8], of: belt.short)
    #expect(try await link.read(belt.short) == [8])
    try await link.disconnect()
    for listener in listeners {
      #expect(try await within { try await listener.value } == ["read", "write [1]", "write [0]", "written [7]"])
    }
    await central.close()
    await peripheral.close()
  }

  /// Values of a service that is removed never reach a client as those of another service that gets its handles.
  @Test func valuesOfARemovedService() async throws {
    let lab = Lab(packetsPerEvent: 1), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let values = try await link.subscribe(to: try await link.discovered("2A37"))
    let heard = Mutex<[[UInt8]]>([])
    let hearing = Task { for try await value in values { heard.withLock { $0.append(value.value) } } }
    let own = try #require(await peripheral.links.first), port = try await own.sendPort(.notification)
    let single = try await own.sendPort(.notification, to: belt.notifying)
    var offered = 0
    while port.offer([1, 2, 3, 4], to: belt.notifying) { offered += 1 }
    #expect(single.offer([5]) && offered > 20)
    let service = try #require(await peripheral.database.allAttributes.last { $0.type == "2800" }).handle
    try await peripheral.remove(service: service)
    #expect(port.count == 0 && !single.offer([6]))
    await #expect(throws: BluetoothError.self) { try await single.waitUntilReady() }
    // Another service, with the same handles.
    var builder = DatabaseBuilder()
    builder.service("180D", at: service) { service in
      service.characteristic("2A37", .notify, at: AttributeHandle(rawValue: belt.notifying.rawValue - 1))
    }
    try await peripheral.insert(builder)
    try await link.write([1, 0], to: AttributeHandle(rawValue: belt.notifying.rawValue + 1))
    _ = try? await link.read(belt.short)
    let before = heard.withLock { $0.count }
    #expect(before < offered)
    while await peripheral.notify([9], of: belt.notifying) != [] {}
    try await eventually { heard.withLock { $0.last } == [9] }
    #expect(heard.withLock { $0.count } == before + 1)
    hearing.cancel()
    await central.close()
    await peripheral.close()
  }

  /// Without a listener the host refuses a request at once, so the client does not wait 30 s.
  @Test func nobodyListens() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    do { _ = await peripheral.events }
    let error = try await within { () -> BluetoothError? in
      do throws(BluetoothError) { _ = try await link.read(belt.dynamic) } catch { return error }
      return nil
    }
    #expect(error?.attError == .unlikelyError)
    await central.close()
    await peripheral.close()
  }

  @Test func answeredTooLate() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      let read = Task { try await link.read(belt.dynamic) }
      guard case .readRequested(let request) = try await events.next() else {
        Issue.record("not asked")
        return
      }
      try await link.disconnect()
      // It gives the reason.
      let error = await #expect(throws: BluetoothError.self) { try await read.value }
      #expect(error?.code == .disconnected && error?.status == .connectionTerminatedByLocalHost)
      guard case .disconnected = try await events.next() else {
        Issue.record("not disconnected")
        return
      }
      let gone = await #expect(throws: BluetoothError.self) { try await request.respond([1]) }
      #expect(gone?.code == .disconnected)
      // It does not answer the next client.
      let second = try await central.connect(to: peripheral.ownAddress, .fast)
      let reader = Task { try await second.read(belt.dynamic) }
      while let event = try await events.next() {
        guard case .readRequested(let next) = event else { continue }
        try? await request.respond([2])
        try await next.respond([3])
        break
      }
      #expect(try await reader.value == [3])
      await peripheral.close()
      await #expect(throws: BluetoothError.self) { try await request.respond([4]) }
    }
    await central.close()
  }

  @Test func advertisingEndsWithALink() async throws {
    let lab = Lab()
    let (central, peripheral) = (try await lab.host(), try await lab.host())
    try await within {
      var events = await peripheral.events.makeAsyncIterator()
      try await peripheral.advertise(
        AdvertisingData(localName: "Once"), AdvertisingParameters(restartsAfterConnection: false))
      _ = try await central.connect(to: peripheral.ownAddress, .fast)
      var link: Link?, isStopped = false
      while link == nil || !isStopped, let event = try await events.next() {
        if case .connected(let connected) = event { link = connected }
        if case .advertisingStopped = event { isStopped = true }
      }
      let peer = await central.ownAddress
      #expect(isStopped && link?.peer == PeerID(peer) && link?.role == .peripheral)
    }
    await central.close()
    await peripheral.close()
  }

  /// Each set starts, is heard, changes and ends independently.
  @Test func severalAdvertisements() async throws {
    let lab = Lab()
    let (central, peripheral) = (try await lab.host(), try await lab.host())
    let ids = (1...3).map { AdvertisingSetID(rawValue: $0) }
    try await within {
      let events = await peripheral.events
      for (number, id) in ids.enumerated() {
        try await peripheral.advertise(
          AdvertisingData(localName: "Set \(number)"),
          AdvertisingParameters(
            kind: .nonconnectable, interval: .every(.milliseconds(20)),
            address: DeviceAddress(0xC000_5E00_5300 + UInt64(number))), as: id)
      }
      for number in 0...2 {
        #expect(try await central.find("Set \(number)").address.address.value == 0xC000_5E00_5300 + UInt64(number))
      }
      try await peripheral.setAdvertisingData(AdvertisingData(localName: "Other"), of: ids[1])
      #expect(try await central.find("Other").address.address.value == 0xC000_5E00_5301)
      await peripheral.stopAdvertising(ids[0])
      try await peripheral.advertise(
        AdvertisingData(localName: "Brief"), AdvertisingParameters(duration: .milliseconds(30)), as: ids[2])
      var ends: [AdvertisingSetID: AdvertisingEnd] = [:]
      for try await event in events {
        if case .advertisingStopped(let id, let end) = event { ends[id] = end }
        if ends.count == 2 { break }
      }
      #expect(ends == [ids[0]: .stopped, ids[2]: .durationOver])
    }
    // An impossible request throws at once, and nothing waits.
    let most = await peripheral.maximumAdvertisingSets
    #expect(most == 8)
    let code = try await errorCode { () async throws(BluetoothError) in
      for number in 10...20 as ClosedRange<UInt32> {
        try await peripheral.advertise(AdvertisingData(localName: "x"), as: AdvertisingSetID(rawValue: number))
      }
    }
    #expect(code == .busy)
    let unknown = try await errorCode { () async throws(BluetoothError) in
      try await peripheral.setAdvertisingData(AdvertisingData(localName: "x"), of: AdvertisingSetID(rawValue: 99))
    }
    #expect(unknown == .invalidArgument)
    await central.close()
    await peripheral.close()
  }
  /// Repeated, with changes, beside a link: each call of `advertise` returns.
  @Test func advertisingAgain() async throws {
    let lab = Lab()
    let (central, peripheral) = (try await lab.host(), try await lab.host())
    try await within {
      for name in ["One", "One", "Two"] { try await peripheral.advertiseFast(name) }
      let link = try await central.connect(to: peripheral.ownAddress, .fast)
      for name in ["Two", "Three"] { try await peripheral.advertiseFast(name) }
      #expect(try await central.find("Three").peer == link.peer)
      await peripheral.stopAdvertising()
      try await peripheral.advertiseFast("Four")
      #expect(try await central.find("Four").peer == link.peer)
    }
    await central.close()
    await peripheral.close()
  }

  /// Vol 3, Part C, §10.5; Vol 3, Part F, §3.4.1.1: 0x08 until the application authorizes the client, and after it
  /// revokes that.
  @Test func authorization() async throws {
    let lab = Lab()
    var builder = DatabaseBuilder()
    let door = builder.service("AA00") { service in
      service.characteristic(
        "AA01", [.read, .write], value: [1],
        permissions: AttributePermissions(read: .open.withAuthorization, write: .open.withAuthorization)
      ).value
    }
    let peripheral = try await lab.host(try builder.build()), central = try await lab.host()
    try await peripheral.advertiseFast()
    let peer = await peripheral.ownAddress
    try await within {
      let link = try await central.connect(to: peer, .fast)
      func attError() async -> ATTError? {
        do throws(BluetoothError) { _ = try await link.read(door) } catch { return error.attError }
        return nil
      }
      let client = try #require(await peripheral.links.first)
      #expect(await attError() == .insufficientAuthorization)
      await client.setAuthorized(true)
      #expect(await attError() == nil)
      try await link.write([2], to: door)
      await peripheral.setAuthorized(false, of: client.id)
      #expect(await attError() == .insufficientAuthorization)
      await client.setAuthorized(true)
      try await link.disconnect()
      // Another link counts as another client.
      let next = try await central.connect(to: peer, .fast)
      await #expect(throws: BluetoothError.self) { try await next.read(door) }
    }
    await central.close()
    await peripheral.close()
  }
}
