import NIOCore
import Synchronization
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneTransport

/// Keeps what a host sends, and the calls that it names before.
final class CallRecorder: ForwardingTransport, @unchecked Sendable {
  // Everything happens on the event loop.
  struct Sent: Sendable {
    /// `connect(to:)`; nil: no call.
    var call: String?
    var number: Int
    var packet: [UInt8]
    /// A command's opcode, an ATT opcode; `…` is a further fragment.
    var word: String {
      switch packet[0] {
      case 0x01: hex([packet[2]]) + hex([packet[1]])
      case _ where packet[2] & 0x30 == 0x10: "…"
      case _ where packet[7] == 0x04: hex([packet[9]])
      default: "channel \(packet[7]), \(hex([packet[9]]))"
      }
    }
    /// The octets from the attribute's handle on.
    var value: ArraySlice<UInt8> { packet[10...] }
  }
  private let isOn: Bool
  private var next: String?
  private var sent: [Sent] = []

  init(_ inner: any HCITransport, isOn: Bool = true) {
    self.isOn = isOn
    super.init(inner)
  }
  override var recordsCalls: Bool { isOn }
  override func willSend(becauseOf call: String) {
    #expect(next == nil && isOn)
    next = call
  }
  override func send(_ packet: Span<UInt8>) {
    let parts = next?.split(separator: " ")
    if let parts { #expect(parts.count == 2 && parts[1].hasPrefix("#")) }
    sent.append(
      Sent(
        call: parts.map { String($0[0]) }, number: parts.flatMap { Int($0[1].dropFirst()) } ?? 0,
        packet: packet.indices.map { packet[$0] }))
    next = nil
    super.send(packet)
  }
  /// Since the last call.
  func take() async throws -> [Sent] {
    try await eventLoop.submit {
      defer { self.sent = [] }
      return self.sent
    }.get()
  }
}
extension [CallRecorder.Sent] {
  /// `CALL: WORD`, without repetitions in a row; `-` is no call.
  var lines: [String] {
    var lines: [String] = []
    for sent in self {
      let line = "\(sent.call ?? "-"): \(sent.word)"
      if lines.last != line { lines.append(line) }
    }
    return lines
  }
}

/// Which call each packet of a host is attributed to. The opcodes are those of Vol 4, Part E, §7, and Vol 3, Part F,
/// §3.4; what each call sends follows from their rules.
@Suite("Call trace", .virtualTime, .hang) struct CallTraceTests {
  private func host(
    _ lab: Lab, _ database: Database = Database(), isOn: Bool = true, observer: (any HostObserver)? = nil
  ) async throws -> (BluetoothHost, CallRecorder) {
    let recorder = CallRecorder(lab.radio.controller(), isOn: isOn)
    let host = BluetoothHost(recorder, database: database, observer: observer)
    try await host.start()
    return (host, recorder)
  }

  @Test func central() async throws {
    let lab = Lab(), belt = try Belt(), peripheral = try await lab.host(belt.database)
    let (central, recorder) = try await host(lab)
    let start = try await recorder.take()
    #expect(start.count > 10 && start.allSatisfy { $0.call == "start()" && $0.number == 1 && $0.packet[0] == 0x01 })

    try await peripheral.advertiseFast()
    _ = try await central.find("Belt")
    let link = try await central.connect(to: peripheral.ownAddress, .fast)
    try await within { while await link.mtu == 23 { await Task.yield() } }
    // The scan ends with its iterator, whose task may run only now. The host itself asks for the length and the MTU.
    let connected = try await recorder.take()
    #expect(
      connected.prefix(2).map { "\($0.call ?? "-"): \($0.word)" } == ["scan(_:filter:): 2041", "scan(_:filter:): 2042"])
    #expect(connected.filter { $0.call == "endScan(_:)" }.lines == ["endScan(_:): 2042"])
    #expect(connected.filter { $0.call == "connect(to:)" }.lines == ["connect(to:): 2043"])
    #expect(Set(connected.filter { $0.call == nil }.map(\.word)) == ["2022", "02"])
    let numbers = connected.filter { $0.call != nil }.map(\.number)
    #expect(Set(numbers) == [2, 3, 4], "\(numbers)")

    _ = try await link.discoverAll()
    let discovery = try await recorder.take()
    #expect(discovery.count > 5 && Set(discovery.map { "\($0.call ?? "-") \($0.number)" }) == ["discoverAll() 5"])
    #expect(discovery.allSatisfy { ["04", "08", "10"].contains($0.word) })

    _ = try await link.read(belt.short)
    try await link.write([UInt8](repeating: 1, count: 500), to: belt.long)
    _ = try await link.writeWithoutResponse([1], to: belt.short)
    try await link.updateParameters(.balanced)
    _ = try await link.readRSSI()
    try await link.disconnect()
    #expect(
      try await recorder.take().lines == [
        // A frame's further fragments have no call of their own.
        "read(_:): 0A", "write(_:to:): 12", "-: …", "writeWithoutResponse(_:to:): 52", "updateParameters(_:): 2013",
        "readRSSI(): 1405", "disconnect(): 0406",
      ])
    await central.close()
    #expect(try await recorder.take().lines == ["close(): 0C03"])
    await peripheral.close()
  }

  @Test func peripheral() async throws {
    let lab = Lab(), belt = try Belt(), (peripheral, recorder) = try await host(lab, belt.database)
    _ = try await recorder.take()
    try await peripheral.advertiseFast()
    let advertising = try await recorder.take()
    #expect(Set(advertising.map { "\($0.call ?? "-") \($0.number)" }) == ["advertise(_:_:as:) 2"])
    #expect(advertising.first?.word == "2036" && advertising.last?.word == "2039")

    var events = await peripheral.events.makeAsyncIterator()
    let central = try await lab.host(), link = try await central.connect(to: peripheral.ownAddress, .fast)
    _ = try await link.discoverAll()
    let values = try await link.subscribe(to: try #require(await link.database.characteristic("2A37")))
    let others = try await link.subscribe(to: try #require(await link.database.characteristic("2A05")))
    _ = try await link.read(belt.short)
    // Answers to the peer, for which no call is made.
    let own = try await recorder.take()
    #expect(own.count > 10 && own.allSatisfy { $0.call == nil })

    async let answers: Void = {
      _ = try await link.read(belt.dynamic)
      try await link.write([1], to: belt.dynamic)
      _ = try? await link.read(belt.dynamic)
    }()
    var client: LinkID?, asked = 0
    while asked < 3, let event = try await events.next() {
      switch event {
      case .connected(let link): client = link.id
      case .readRequested(let request) where asked == 0: try await request.respond([1])
      case .readRequested(let request): try await request.reject(.readNotPermitted)
      case .writeRequested(let request): try await request.accept()
      default: continue
      }
      if case .connected = event { continue }
      asked += 1
    }
    try await answers
    let server = try #require(client)
    #expect(await peripheral.notify([1], of: belt.notifying).isEmpty)
    try await peripheral.indicate([2], of: belt.indicating, on: server)
    let port = try await peripheral.sendPort(.notification, to: belt.notifying, on: server, capacity: 100)
    #expect(port.offer([3]))
    var iterator = values.makeAsyncIterator(), received: [[UInt8]] = []
    while received.count < 2, let value = try await iterator.next() { received.append(value.value) }
    #expect(received == [[1], [3]])
    #expect(
      try await recorder.take().lines == [
        "respond(to:with:): 0B", "accept(_:): 13", "reject(_:_:about:): 01", "notify(_:of:): 1B",
        "indicate(_:of:on:): 1D", "offer(_:): 1B",
      ])
    withExtendedLifetime((others, values)) {}
    await central.close()
    await peripheral.close()
  }

  /// Requests and values that wait for a buffer or for one another, in an order that a seed chooses: each packet names
  /// its own call, and the calls of one kind leave in their order.
  @Test(arguments: UInt64(1)...8) func whatWaits(seed: UInt64) async throws {
    var builder = DatabaseBuilder()
    let values = builder.service("180D") { service in
      ["2A38", "2A39", "2A3A"].map {
        service.characteristic($0, [.read, .write, .writeWithoutResponse], value: .stored([0, 0])).value
      }
    }
    let lab = Lab(packetsPerEvent: 2), peripheral = try await lab.host(try builder.build())
    try await peripheral.advertiseFast()
    let observer = Recorder(), (central, recorder) = try await host(lab, observer: observer)
    let link = try await central.connect(to: peripheral.ownAddress, .fast)
    let wide = try await central.sendPort(.command, on: link.id, capacity: 2_000)
    let narrow = try await link.sendPort(.command, to: values[1], capacity: 600)
    _ = try await recorder.take()
    var chance = SplitMix64(seed: seed), expected: [String: Int] = [:]
    for number in 0..<300 {
      let value = [UInt8(number & 0xFF), UInt8(number >> 8)]
      func made(_ call: String) { expected[call, default: 0] += 1 }
      switch Int.random(in: 0..<6, using: &chance) {
      case 0:
        let long = [UInt8](repeating: 0, count: Int.random(in: 0..<2, using: &chance) * 400)
        await central.begin(.write(link.id, values[2], value + long))
        made("write(_:to:)")
      case 1:
        await central.begin(.read(link.id, values[0]))
        made("read(_:)")
      case 2...3: if wide.offer(value, to: values[0]) { made("offer(_:to:)") }
      default: if narrow.offer(value) { made("offer(_:)") }
      }
    }
    _ = try await within { try await link.read(values[0]) }
    expected["read(_:)", default: 0] += 1
    let sent = try await recorder.take()
    var last: [String: (call: Int, value: Int)] = [:], counts: [String: Int] = [:]
    for one in sent where one.word != "…" {
      let handle = AttributeHandle(rawValue: UInt16(one.packet[10]) | UInt16(one.packet[11]) << 8)
      let call =
        switch (one.word, handle) {
        case ("0A", values[0]): "read(_:)"
        case ("12", values[2]): "write(_:to:)"
        case ("52", values[0]): "offer(_:to:)"
        case ("52", values[1]): "offer(_:)"
        default: "nothing: \(one.word)"
        }
      #expect(one.call == call)
      counts[call, default: 0] += 1
      let number = one.packet.count > 13 ? Int(one.packet[12]) | Int(one.packet[13]) << 8 : 0
      if let last = last[call] { #expect(one.number > last.call && number >= last.value, "\(call)") }
      last[call] = (one.number, number)
    }
    #expect(counts == expected)
    #expect(sent.filter { $0.word == "…" }.allSatisfy { $0.call == nil })
    await central.close()
    await peripheral.close()
  }

  /// Commands of several calls at once, which the controller takes one at a time.
  @Test func commandsThatWait() async throws {
    let lab = Lab(), belt = try Belt(), peripheral = try await lab.host(belt.database)
    try await peripheral.advertiseFast()
    let observer = Recorder(), (central, recorder) = try await host(lab, observer: observer)
    _ = try await recorder.take()
    try await central.beginAll(toward: await peripheral.ownAddress)
    try await within { while await central.links.isEmpty { await Task.yield() } }
    let sent = try await recorder.take()
    let commands = Dictionary(grouping: sent.filter { $0.packet[0] == 0x01 }, by: { $0.call ?? "-" })
      .mapValues { Set($0.map(\.word)) }
    #expect(commands["beginScan(_:_:)"] == ["2041", "2042"])
    #expect(commands["connect(to:)"] == ["2043"])
    #expect(commands["beginAdvertising(_:_:as:)"]?.isSuperset(of: ["2036", "2037", "2039"]) == true)
    #expect(commands["-"] ?? [] == ["2022"])
    #expect(Set(sent.filter { $0.call != nil }.map(\.number)) == [2, 3, 4])
    await central.close()
    await peripheral.close()
  }

  @Test func pairing() async throws {
    let lab = Lab(), belt = try Belt(), peripheral = try await lab.host(belt.database)
    try await peripheral.advertiseFast()
    let (central, recorder) = try await host(lab), link = try await central.connect(to: peripheral.ownAddress, .fast)
    _ = try await recorder.take()
    try await link.pair()
    let sent = try await recorder.take()
    let pairing = sent.filter { $0.word.hasPrefix("channel 6") }
    #expect(pairing.first?.word == "channel 6, 01" && pairing.allSatisfy { $0.call == "pair(_:)" })
    await central.close()
    await peripheral.close()
  }

  /// Off, nothing is named: the transport checks that.
  @Test func off() async throws {
    let lab = Lab(), (central, recorder) = try await host(lab, isOn: false)
    #expect(await !central.namesCalls)
    #expect(try await recorder.take().allSatisfy { $0.call == nil })
    await central.close()
  }
}

extension BluetoothHost {
  fileprivate var namesCalls: Bool { calls != nil }
  /// In one turn of the event loop.
  fileprivate func beginAll(toward peer: PeerAddress) throws {
    _ = try beginScan(ScanParameters(), ScanFilter())
    begin(.connectToFirst([peer], .fast, timeout: nil))
    try beginAdvertising(AdvertisingData(localName: "Other"))
  }
}
