import Bindrune
import BindruneHCI
import NIOCore
import Synchronization
import TestSupport
import Testing

@Suite("Observer", .virtualTime, .hang) struct ObserverTests {
  /// Two characteristics that notify, and one that the application keeps.
  private struct Meter {
    let database: Database
    let one: AttributeHandle, other: AttributeHandle, dynamic: AttributeHandle
    init() throws {
      var builder = DatabaseBuilder()
      (one, other, dynamic) = builder.service("180D") { service in
        (
          service.characteristic("2A37", .notify).value, service.characteristic("2A38", [.notify, .indicate]).value,
          service.characteristic("2A9F", [.read, .write], value: .dynamic).value
        )
      }
      database = try builder.build()
    }
  }

  /// The ATT PDUs from a controller to its host, in the notation of the observer's events: the oracle is the wire, not
  /// the host.
  private static func text(ofACL packet: [UInt8]) -> String? {
    guard packet.count > 9, packet[0] == 0x02, packet[7] == 0x04, packet[8] == 0x00 else { return nil }
    let value = packet[10...]
    switch packet[9] {
    case 0x1B, 0x1D:
      let handle = UInt16(value[10]) | UInt16(value[11]) << 8
      return "\(packet[9] == 0x1B ? "notified" : "indicated") \(handle) \(hex(value.dropFirst(2)))"
    case 0x0B: return "read \(hex(value))"
    case 0x13: return "written"
    default: return nil
    }
  }
  private static func text(of reports: Recorder.Report) -> String? {
    switch reports {
    case .value(let value, let handle, let isIndication, _):
      "\(isIndication ? "indicated" : "notified") \(handle.rawValue) \(hex(value))"
    case .event(.completed(_, .success(.value(let value)))): "read \(hex(value))"
    case .event(.completed(_, .success(.done))): "written"
    default: nil
    }
  }

  /// The observer receives values and answers to reads and writes, as many at once as possible, in the order of the
  /// wire; and the values that one port sends for two characteristics in the order of the offers.
  @Test(arguments: [1, 2, 3] as [UInt64]) func inTheOrderOfTheWire(seed: UInt64) async throws {
    let lab = Lab(), meter = try Meter(), requests = 300, values = 600
    let chance = Mutex(SplitMix64(seed: seed)), asked = Mutex(0)
    let server = Recorder { host, reports in
      guard case .event(.server(let event)) = reports else { return }
      let answered = asked.withLock { asked in
        asked += 1
        return UInt8(truncatingIfNeeded: asked)
      }
      // Some before the answer, some after it.
      func notify(_ host: isolated BluetoothHost) {
        for _ in 0..<chance.withLock({ Int.random(in: 0...2, using: &$0) }) {
          host.notify([9, answered], of: meter.one)
        }
      }
      switch event {
      case .readRequested(let request):
        notify(host)
        #expect(thrown { () throws(BluetoothError) in try host.respond(to: request, with: [answered, 1]) } == nil)
        notify(host)
      case .writeRequested(let request):
        notify(host)
        #expect(thrown { () throws(BluetoothError) in try host.accept(request) } == nil)
        notify(host)
      default: break
      }
    }
    let client = Recorder(), wire = Mutex<[String]>([])
    let peripheral = try await lab.host(meter.database, observer: server)
    let (central, relay) = try await lab.relayedHost(observer: client)
    try await peripheral.advertiseFast()
    guard case .linked(let link) = try await central.end(of: .connect(PeerID(peripheral.ownAddress), .fast), client)
    else {
      Issue.record("no link")
      return
    }
    _ = try await central.end(of: .discoverAll(link.id), client)
    for handle in [meter.one, meter.other] {
      _ = try await central.end(of: .subscribe(link.id, handle, .notification), client)
    }
    let before = client.reports.count, served = try await server.link()
    try await relay.watch { packet in
      if let text = Self.text(ofACL: packet) { wire.withLock { $0.append(text) } }
    }

    // One more request for each that ends, and sometimes for a value.
    let left = Mutex(requests)
    let ask: @Sendable (isolated BluetoothHost) -> Void = { host in
      let number = left.withLock { left in
        left -= 1
        return left
      }
      guard number >= 0 else { return }
      client.calling {
        host.begin(
          number.isMultiple(of: 3)
            ? .write(link.id, meter.dynamic, [UInt8(number & 255)]) : .read(link.id, meter.dynamic))
      }
    }
    client.react { host, reports in
      switch reports {
      case .event(.completed): ask(host)
      case .value(let value, _, _, _) where value.last?.isMultiple(of: 16) == true: ask(host)
      default: break
      }
    }
    await central.run { host in for _ in 0..<4 { ask(host) } }
    let port = try await peripheral.run { host throws(BluetoothError) in
      try host.sendPort(.notification, on: served.id, capacity: 600)
    }
    try await within {
      for number in 0..<values {
        let value = [UInt8(number >> 8), UInt8(number & 255)]
        while !port.offer(value, to: number.isMultiple(of: 2) ? meter.one : meter.other) {
          try await port.waitUntilReady()
        }
      }
    }
    try await eventually {
      let reports = client.reports.dropFirst(before).compactMap { Self.text(of: $0) }
      return reports.filter { !$0.hasPrefix("notified") }.count == requests
        && reports.contains(
          "notified \(meter.other.rawValue) \(hex([UInt8((values - 1) >> 8), UInt8((values - 1) & 255)]))")
    }
    // The server's last notifications may still be in transit: wait until both have the same number.
    try await eventually {
      client.reports.dropFirst(before).count { Self.text(of: $0) != nil } == wire.withLock { $0.count }
    }
    let reports = client.reports.dropFirst(before).compactMap { Self.text(of: $0) }
    #expect(reports == wire.withLock { $0 }, "seed \(seed)")
    let numbers = client.reports.compactMap { reports -> Int? in
      guard case .value(let value, let handle, _, _) = reports, value[0] != 9 else { return nil }
      let number = Int(value[0]) << 8 | Int(value[1])
      #expect(handle == (number.isMultiple(of: 2) ? meter.one : meter.other))
      return number
    }
    #expect(numbers == Array(0..<values))
    await central.close()
    await peripheral.close()
  }

  /// One `.completed` for each, after `begin` has returned: on a link that is down, a host that is not started, or
  /// closed.
  @Test func whatCannotBeBegun() async throws {
    let gone = LinkID(rawValue: 99), handle = AttributeHandle(rawValue: 3)
    let operations: [HostOperation] = [
      .disconnect(gone), .readRSSI(gone), .readFeatures(gone), .updateParameters(gone, ConnectionParameterRange(.fast)),
      .discoverAll(gone),
      .discoverServices(gone, nil), .discoverIncludedServices(gone, .all), .discoverCharacteristics(gone, .all),
      .discoverDescriptors(gone, .all), .followChanges(gone), .read(gone, handle), .write(gone, handle, [1]),
      .subscribe(gone, handle, nil), .unsubscribe(gone, handle),
    ]
    let lab = Lab(), recorder = Recorder(), (host, _) = try await lab.unstartedHost(observer: recorder)
    var codes: [(RequestID, BluetoothError.Code)] = []
    func beginAll(_ code: BluetoothError.Code) async throws {
      let ids = await host.run { host in
        recorder.calling { operations.map { host.begin($0) } }
      }
      codes += ids.map { ($0, code) }
      for id in ids { #expect(try await recorder.result(of: id).code == code) }
    }
    try await beginAll(.notStarted)
    try await host.start()
    try await beginAll(.disconnected)
    // Also from within a method of the observer.
    let again = Mutex<RequestID?>(nil)
    recorder.react { host, reports in
      guard case .event(.completed) = reports, again.withLock({ $0 }) == nil else { return }
      let id = recorder.calling { host.begin(.readRSSI(gone)) }
      again.withLock { $0 = id }
    }
    try await beginAll(.disconnected)
    let inside = try #require(again.withLock { $0 })
    #expect(try await recorder.result(of: inside).code == .disconnected)
    codes.append((inside, .disconnected))
    await host.close()
    try await beginAll(.notStarted)
    #expect(recorder.completions.map(\.id.rawValue).sorted() == codes.map(\.0.rawValue).sorted())
    #expect(recorder.events.count { if case .failed = $0 { true } else { false } } == 1)
  }

  enum End: CaseIterable { case disconnect, task, peer, close, transport, hardware }
  /// However a link or the host ends: each operation completes once, before the report that its link is down;
  /// afterwards the observer receives nothing of that link, and only `.failed` of the host.
  @Test(arguments: End.allCases) func everythingEndsOnce(_ end: End) async throws {
    let lab = Lab(), belt = try Belt(), recorder = Recorder(), serving = Recorder()
    let peripheral = try await lab.host(belt.database, observer: serving)
    let (central, relay) = try await lab.relayedHost(observer: recorder)
    try await peripheral.advertiseFast()
    guard case .linked(let link) = try await central.end(of: .connect(PeerID(peripheral.ownAddress), .fast), recorder)
    else {
      Issue.record("no link")
      return
    }
    _ = try await central.end(of: .discoverAll(link.id), recorder)
    let waiting = await central.run { host in
      [
        // This one gets no answer, and the others wait for that.
        HostOperation.read(link.id, belt.dynamic), .read(link.id, belt.short), .write(link.id, belt.short, [1]),
        .subscribe(link.id, belt.notifying, nil), .discoverServices(link.id, nil),
      ].map { host.begin($0) }
    }
    let nobody = await central.run { host in
      host.begin(.connect(PeerID(PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .random)), .fast))
    }
    _ = try await serving.first { if case .server(.readRequested) = $0 { true } else { nil } }
    #expect(recorder.completions.count == 2)

    var asked: [RequestID] = []
    let code: BluetoothError.Code
    switch end {
    case .disconnect:
      asked = await central.run { host in [host.begin(.disconnect(link.id)), host.begin(.disconnect(link.id))] }
      code = .disconnected
    case .peer:
      let served = try await serving.link()
      _ = await peripheral.run { $0.begin(.disconnect(served.id)) }
      code = .disconnected
    case .close:
      await central.close()
      code = .notStarted
    case .transport:
      try await relay.close()
      code = .transport
    case .hardware:
      try await relay.fromController("04 10 01 42")
      code = .controller
    case .task:
      try await link.disconnect()
      code = .disconnected
    }
    for id in waiting { #expect(try await recorder.result(of: id).code == code, "\(end)") }
    for id in asked { #expect(try await recorder.result(of: id).code == nil) }
    let endsHost = [.close, .transport, .hardware].contains(end)
    if endsHost {
      let ended = try await recorder.result(of: nobody).code
      #expect(ended == code)
      _ = try await recorder.first { if case .failed = $0 { true } else { nil } }
      guard case .failed? = recorder.events.last else {
        Issue.record("an event follows the end")
        return
      }
    } else {
      await central.run { $0.cancel(nobody) }
      #expect(try await recorder.result(of: nobody).code == .cancelled)
    }
    // The events of the link, up to its end.
    if ![.transport, .hardware].contains(end) {
      let down = try await recorder.first { event in
        if case .server(.disconnected(link.id, _)) = event { true } else { nil }
      }
      #expect(down)
      let last = try #require(
        recorder.events.firstIndex { if case .server(.disconnected) = $0 { true } else { false } })
      for event in recorder.events[last...] {
        if case .completed(let id, _) = event { #expect(id == nobody, "reported after its link") }
      }
    }
    #expect(recorder.completions.count == 2 + waiting.count + asked.count + 1)
    await central.close()
    await peripheral.close()
    #expect(recorder.completions.count == 2 + waiting.count + asked.count + 1)
  }

  /// A cancelled operation ends once, with `.cancelled`, and the next request gets its answer.
  @Test func cancelled() async throws {
    let lab = Lab(), belt = try Belt(), recorder = Recorder(), serving = Recorder()
    let peripheral = try await lab.host(belt.database, observer: serving)
    let central = try await lab.host(observer: recorder)
    try await peripheral.advertiseFast()
    guard case .linked(let link) = try await central.end(of: .connect(PeerID(peripheral.ownAddress), .fast), recorder)
    else {
      Issue.record("no link")
      return
    }
    let ids = await central.run { host in
      [HostOperation.read(link.id, belt.dynamic), .read(link.id, belt.short)].map { host.begin($0) }
    }
    guard
      case .readRequested(let request) = try await serving.first({ event -> ServerEvent? in
        if case .server(let event) = event, case .readRequested = event { event } else { nil }
      })
    else { return }
    await central.run { host in
      recorder.calling {
        host.cancel(ids[0])
        host.cancel(ids[0])
        host.cancel(RequestID(rawValue: 1 << 40))
      }
    }
    #expect(try await recorder.result(of: ids[0]).code == .cancelled)
    try await peripheral.run { host throws(BluetoothError) in try host.respond(to: request, with: [1]) }
    guard case .value([2]) = try await recorder.result(of: ids[1]).get() else {
      Issue.record("the next one is not answered")
      return
    }
    await central.run { host in for id in ids { host.cancel(id) } }
    guard case .rssi = try await central.end(of: .readRSSI(link.id), recorder) else {
      Issue.record("no RSSI")
      return
    }
    #expect(recorder.completions.map(\.id).count { ids.contains($0) } == 2)
    await central.close()
    await peripheral.close()
  }

  /// From the advertisement to the answers, with only an observer on either side: no task waits.
  @Test func withoutTasks() async throws {
    let lab = Lab(), belt = try Belt(), loop = lab.radio.eventLoop
    let serving = Recorder(), recorder = Recorder(), confirmed = Mutex(0)
    let peripheral = try await BluetoothHost.open(
      "sim", on: loop, radio: lab.radio, database: belt.database, observer: serving)
    let central = try await BluetoothHost.open("sim", radio: lab.radio, observer: recorder)
    serving.react { host, reports in
      let failure = thrown { () throws(BluetoothError) in
        switch reports {
        case .event(.server(.readRequested(let request))):
          try host.respond(to: request, withRest: [7, 7])
          let again = thrown { () throws(BluetoothError) in try host.respond(to: request, with: [8]) }
          #expect(again?.code == .invalidArgument)
        case .event(.server(.writeRequested(let request))):
          if request.value == [0] { try host.reject(request, .valueNotAllowed) } else { try host.accept(request) }
        case .event(.server(.subscriptionChanged(let link, belt.indicating, .indication))):
          try host.beginIndication([5], of: belt.indicating, on: link)
          // One at a time.
          let second = thrown { () throws(BluetoothError) in
            try host.beginIndication([6], of: belt.indicating, on: link)
          }
          #expect(second?.code == .busy)
        case .event(.indicationConfirmed(let link, belt.indicating)):
          confirmed.withLock { $0 += 1 }
          if confirmed.withLock({ $0 }) < 3 { try host.beginIndication([6], of: belt.indicating, on: link) }
        default: break
        }
      }
      #expect(failure == nil)
    }
    let packed = try await peripheral.run { host throws(BluetoothError) in
      try serving.calling { () throws(BluetoothError) in
        try host.beginAdvertising(
          AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"]),
          AdvertisingParameters(interval: .every(.milliseconds(20))))
      }
    }
    #expect(!packed.advertising.isEmpty)
    _ = try await serving.first { if case .advertisingStarted(.first) = $0 { true } else { nil } }

    let (scan, never) = try await central.run { host throws(BluetoothError) in
      (
        try host.beginScan(ScanParameters(), ScanFilter(services: ["180D"])),
        try host.beginScan(ScanParameters(), ScanFilter(services: ["180F"]))
      )
    }
    let peer = try await recorder.first { event in
      if case .discovered(scan, let advertisement) = event { advertisement.address } else { nil }
    }
    await central.run { host in
      recorder.calling {
        host.endScan(scan)
        host.endScan(never)
        host.endScan(never)
      }
    }
    let heard = recorder.reports.count
    guard case .linked(let link) = try await central.end(of: .connect(PeerID(peer), .fast), recorder) else {
      Issue.record("no link")
      return
    }
    #expect(try await recorder.link().id == link.id && link.peer == PeerID(peer) && link.role == .central)
    _ = try await serving.link()
    for event in recorder.events.suffix(recorder.reports.count - heard) {
      if case .discovered = event { Issue.record("discovered after the end of the scan") }
    }
    guard case .database(let services) = try await central.end(of: .discoverServices(link.id, "180D"), recorder),
      let service = services.service("180D")
    else {
      Issue.record("no services")
      return
    }
    _ = try await central.end(of: .discoverIncludedServices(link.id, service.range), recorder)
    _ = try await central.end(of: .discoverCharacteristics(link.id, service.range), recorder)
    let known = try #require(await central.remoteDatabase(of: link.id))
    let indicated = try #require(known.characteristic("2A05"))
    let range = try #require(indicated.descriptorRange)
    _ = try await central.end(of: .discoverDescriptors(link.id, range), recorder)
    guard case .value([7, 7]) = try await central.end(of: .read(link.id, belt.dynamic), recorder) else {
      Issue.record("no answer")
      return
    }
    guard case .done = try await central.end(of: .write(link.id, belt.dynamic, [1]), recorder) else { return }
    let refused = await central.run { $0.begin(.write(link.id, belt.dynamic, [0])) }
    guard case .failure(let error) = try await recorder.result(of: refused) else {
      Issue.record("accepted")
      return
    }
    #expect(error.attError == .valueNotAllowed)
    _ = try await central.end(of: .subscribe(link.id, indicated.valueHandle, nil), recorder)
    try await eventually { confirmed.withLock { $0 } == 3 }
    let values = recorder.reports.compactMap { reports -> [UInt8]? in
      if case .value(let value, indicated.valueHandle, isIndication: true, link.id) = reports { value } else { nil }
    }
    #expect(values == [[5], [6], [6]])
    _ = try await central.end(of: .unsubscribe(link.id, indicated.valueHandle), recorder)
    guard
      case .parameters(let parameters) = try await central.end(
        of: .updateParameters(link.id, ConnectionParameterRange(.balanced)), recorder)
    else { return }
    #expect(parameters.interval == ConnectionParameters.balanced.interval)
    // The peer's MTU and the parameters of both: 517 here.
    #expect(await central.mtu(of: link.id) == 517)
    _ = try await recorder.first { if case .mtuChanged(link.id, 517) = $0 { true } else { nil } }
    #expect(await central.mtu(of: LinkID(rawValue: 77)) == nil)

    let impossible = ScanParameters(
      intent: .custom(interval: ScanInterval(.milliseconds(10)), window: ScanInterval(.milliseconds(20))))
    await #expect(throws: BluetoothError.self) {
      try await central.run { host throws(BluetoothError) in try host.beginScan(impossible, ScanFilter(services: [])) }
    }
    await central.close()
    await peripheral.close()
    await #expect(throws: BluetoothError.self) {
      try await central.run { host throws(BluetoothError) in
        try host.beginScan(ScanParameters(), ScanFilter(services: []))
      }
    }
  }

  /// A change of the services arrives in order: before the rediscovered database, and not as a value.
  @Test func servicesThatChange() async throws {
    var builder = DatabaseBuilder()
    builder.service("1801") { service in service.characteristic("2A05", .indicate) }
    builder.service("180D") { service in service.characteristic("2A37", .notify) }
    let lab = Lab(), recorder = Recorder(), peripheral = try await lab.host(try builder.build())
    let central = try await lab.host(observer: recorder)
    try await peripheral.advertiseFast()
    guard case .linked(let link) = try await central.end(of: .connect(PeerID(peripheral.ownAddress), .fast), recorder),
      case .database(let database) = try await central.end(of: .discoverAll(link.id), recorder)
    else {
      Issue.record("no database")
      return
    }
    _ = try await central.end(of: .followChanges(link.id), recorder)
    let service = try #require(database.service("180D"))
    try await peripheral.remove(service: service.handle)
    let again = try await recorder.first { event in
      if case .rediscovered(link.id, let database) = event { database } else { nil }
    }
    #expect(again.service("180D") == nil && again.service("1801") != nil)
    let reports = recorder.reports.compactMap { reports -> String? in
      switch reports {
      case .event(.servicesChanged(link.id, let range)): range.contains(service.handle) ? "changed" : "others"
      case .event(.rediscovered): "rediscovered"
      case .value: "value"
      default: nil
      }
    }
    #expect(reports == ["changed", "rediscovered"])
    await central.close()
    await peripheral.close()
  }

  /// A request that the observer begins when it receives a value leaves at once, even if only that value has arrived:
  /// it waits for no other packet and no timer.
  @Test func begunByAValue() async throws {
    let lab = Lab(), belt = try Belt(), recorder = Recorder(), serving = Recorder()
    let peripheral = try await lab.host(belt.database, observer: serving)
    let central = try await lab.host(observer: recorder)
    try await peripheral.advertiseFast()
    guard case .linked(let link) = try await central.end(of: .connect(PeerID(peripheral.ownAddress), .fast), recorder),
      case .database = try await central.end(of: .discoverAll(link.id), recorder),
      case .done = try await central.end(of: .subscribe(link.id, belt.notifying, nil), recorder)
    else {
      Issue.record("not subscribed")
      return
    }
    let begun = Mutex<[RequestID]>([])
    recorder.react { host, reports in
      if case .value = reports { begun.withLock { $0.append(host.begin(.readRSSI(link.id))) } }
    }
    for number in 1...3 {
      let start = central.transport.eventLoop.now
      await peripheral.notify([UInt8(number)], of: belt.notifying)
      try await within {
        while recorder.completions.count(where: { begun.withLock { $0 }.contains($0.id) }) < number {
          await Task.yield()
        }
      }
      #expect(central.transport.eventLoop.now - start < .milliseconds(500))
    }
    #expect(begun.withLock { $0.count } == 3)
    await central.close()
    await peripheral.close()
  }

  /// Beside an observer, sequences and `async` functions return the same as without.
  @Test func besideTasks() async throws {
    let lab = Lab(), belt = try Belt(), recorder = Recorder(), serving = Recorder()
    let peripheral = try await lab.host(belt.database, observer: serving)
    let central = try await lab.host(observer: recorder)
    try await within {
      var served = await peripheral.events.makeAsyncIterator()
      try await peripheral.advertiseFast()
      let found = try await central.find("Belt")
      let link = try await central.connect(to: found.address, .fast)
      let subscription = try await link.subscribe(to: try await link.discovered("2A37"))
      var batches = subscription.batches.makeAsyncIterator()
      while let event = try await served.next() { if case .subscriptionChanged = event { break } }
      await peripheral.notify([1, 2, 3], of: belt.notifying)
      #expect(try await batches.next()?.first?.value == [1, 2, 3])
      let reader = Task { try await link.read(belt.dynamic) }
      while let event = try await served.next() {
        guard case .readRequested(let request) = event else { continue }
        try await request.respond([4])
        break
      }
      #expect(try await reader.value == [4])
      try await subscription.end()
      try await link.disconnect()
    }
    let values = recorder.reports.count {
      if case .value([1, 2, 3], belt.notifying, _, _) = $0 { true } else { false }
    }
    #expect(values == 1 && recorder.completions.isEmpty)
    #expect(serving.events.contains { if case .server(.readRequested) = $0 { true } else { false } })
    await central.close()
    await peripheral.close()
  }
}
