import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// A client, with bearer 1 and perhaps others, and a tester that plays its server, octet for octet.
final class Dialogue {
  var client: Client
  var mtu: Int
  private var packet = PacketBuffer()

  init(mtu: Int = 23, configuration: ClientConfiguration = ClientConfiguration()) {
    client = Client(configuration: configuration)
    self.mtu = mtu
    open(1)
  }
  func open(_ number: UInt16) { client.open(BearerID(rawValue: number)) }
  func close(_ number: UInt16 = 1, _ reason: BearerClosure = .disconnected) {
    client.close(reason, on: BearerID(rawValue: number))
  }
  /// Sets the bearer of the next requests.
  func ask(on number: UInt16) { client.makeRequests(on: BearerID(rawValue: number), after: 0) }
  func hasRequest(on number: UInt16) -> Bool { client.hasRequest(on: BearerID(rawValue: number)) }
  func holdsCommands(on number: UInt16) -> Bool { client.holdsCommands(on: BearerID(rawValue: number)) }

  /// The client's next request; nil if it has none that may leave after this many commands.
  func request(on number: UInt16 = 1, after commands: UInt64 = 0) -> [UInt8]? {
    let mtu = self.mtu, bearer = BearerID(rawValue: number), said = client.hasRequest(on: bearer)
    let wrote = packet.fill { client.nextRequest(on: bearer, after: commands, mtu: mtu, into: &$0) }
    #expect(said || !wrote, "hasRequest said no")
    #expect(packet.count <= mtu)
    return wrote ? packet.bytes : nil
  }
  func respond(_ octets: [UInt8], on number: UInt16 = 1) {
    guard let pdu = try? ATTPDU(octets.span) else { return #expect(Bool(false), "\(hex(octets)) does not decode") }
    client.receive(response: pdu, in: octets.span, on: BearerID(rawValue: number), mtu: mtu, now: .zero)
  }
  func send(_ octets: [UInt8], on number: UInt16 = 1) {
    guard let pdu = try? ATTPDU(octets.span) else { return #expect(Bool(false), "\(hex(octets)) does not decode") }
    client.receive(value: pdu, in: octets.span, on: BearerID(rawValue: number), now: .zero)
  }
  func write(_ id: RequestID, _ handle: AttributeHandle, _ value: [UInt8]) { client.write(id, handle, value.span) }
  func writeLong(_ id: RequestID, _ handle: AttributeHandle, _ value: [UInt8]) {
    client.writeLong(id, handle, value.span)
  }
  /// The lines of `script`, `> what the client asks` and `< what it is answered` in turns, and `2>`, `2<` for bearer 2;
  /// then the client must send nothing on bearer 1.
  func play(_ script: String, isOver: Bool = true, at location: SourceLocation = #_sourceLocation) {
    for line in script.split(separator: "\n").map({ $0.drop { $0 == " " } }) where !line.isEmpty {
      let number = UInt16(line.prefix { $0.isNumber }) ?? 1, line = line.drop { $0.isNumber }
      let expected = octets(String(line.dropFirst().prefix { $0 != "#" }))
      if line.hasPrefix(">") {
        #expect(hex(request(on: number) ?? []) == hex(expected), sourceLocation: location)
      } else {
        respond(expected, on: number)
      }
    }
    if isOver { #expect(request() == nil, sourceLocation: location) }
  }
  /// All effects, as text: `1 value 01 02`.
  func effects() -> [String] {
    var lines: [String] = []
    while let effect = client.nextEffect() { lines.append(text(effect)) }
    return lines
  }
  private func text(_ range: HandleRange) -> String {
    hexDigits(UInt64(range.first.rawValue), 4) + "-" + hexDigits(UInt64(range.last.rawValue), 4)
  }
  private func text(_ effect: ClientEffect) -> String {
    switch effect {
    case .completed(let id, .value(let octets)): return "\(id.rawValue) value \(hex(client.bytes(of: octets)))"
    case .completed(let id, .values(let octets)):
      let values = client.values(of: octets).map {
        "\($0.handle.rawValue)=\(hex(client.bytes(of: $0.value)))\($0.isCut ? "…" : "")"
      }
      return "\(id.rawValue) values \(values.joined(separator: ", "))"
    case .completed(let id, .failed(.att(let error, let opcode, let handle))):
      let numbers = [error.rawValue, opcode.rawValue, UInt8(handle.rawValue & 0xFF)]
      return "\(id.rawValue) att \(hex(numbers))"
    case .completed(let id, .failed(let error)): return "\(id.rawValue) \(error)"
    case .completed(let id, .databaseHash(let hash)): return "\(id.rawValue) hash \(hash.map { "\($0)" } ?? "none")"
    case .completed(let id, let result): return "\(id.rawValue) \(result)"
    case .value(let handle, let octets, let kind): return "\(kind) \(handle.rawValue): \(hex(client.bytes(of: octets)))"
    case .valuesLost(let count): return "lost \(count)"
    case .ignored(let violation): return "ignored \(violation)"
    case .securityNeeded(let error): return "security \(hex([error.rawValue]))"
    case .servicesChanged(let range): return "changed \(text(range))"
    case .rediscovered(let range, let error): return "rediscovered \(text(range))" + (error.map { " \($0)" } ?? "")
    }
  }
}

extension RequestID: ExpressibleByIntegerLiteral {
  public init(integerLiteral value: UInt64) { self.init(rawValue: value) }
}
extension AttributeHandle: ExpressibleByIntegerLiteral {
  public init(integerLiteral value: UInt16) { self.init(rawValue: value) }
}

/// A client and a server, connected directly by two bearers.
final class Pair {
  var client = Client()
  var server: Server
  var roundTrips = 0
  private var near: Bearer, far: Bearer
  private var packet = PacketBuffer()
  // Each bearer has both halves; these do nothing.
  private var noServer = Server(database: try! DatabaseBuilder().build())
  private var noClient = Client()

  init(_ database: Database, mtu: Int) {
    var configuration = BearerConfiguration()
    configuration.preferredMTU = mtu
    near = Bearer(BearerID(rawValue: 1), configuration: configuration)
    far = Bearer(BearerID(rawValue: 2), configuration: configuration)
    server = Server(database: database)
    server.open(BearerID(rawValue: 2))
    client.open(BearerID(rawValue: 1))
    if mtu > 23 {
      near.exchangeMTU()
      run()
      roundTrips = 0
    }
    precondition(near.mtu == mtu)
  }
  /// Runs until neither has a PDU to send.
  func run() {
    while true {
      let wrote = packet.fill { near.nextPDU(into: &$0, now: .zero, client: &client) }
      guard wrote else { break }
      roundTrips += 1
      let bytes = packet.bytes
      far.receive(bytes.span, now: .zero, server: &server, client: &noClient)
      pump()
    }
  }
  private func pump() {
    while packet.fill({ far.nextPDU(into: &$0, now: .zero, client: &noClient) }) {
      let bytes = packet.bytes
      near.receive(bytes.span, now: .zero, server: &noServer, client: &client)
    }
  }
  /// A notification from the server.
  func notify(_ handle: AttributeHandle, _ value: [UInt8]) {
    _ = far.offer(notification: handle, value.span)
    pump()
  }
  func indicate(_ handle: AttributeHandle, _ value: [UInt8]) {
    _ = far.indicate(handle, value.span)
    pump()
    run()
  }
  func effects() -> [ClientEffect] {
    var effects: [ClientEffect] = []
    while let effect = client.nextEffect() { effects.append(effect) }
    return effects
  }
  /// The bytes of the only value among the effects.
  func value() -> [UInt8]? {
    for effect in effects() {
      if case .completed(_, .value(let octets)) = effect { return client.bytes(of: octets) }
    }
    return nil
  }
}
