import BindruneATT
import BindruneWire
import Foundation
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

@testable import BindruneGAP

/// A core and a scripted controller: the test decides the controller's packets and their time.
struct Bench: ~Copyable {
  var core: HostCore
  var now = Instant.zero + .seconds(1)
  /// Commands that the core has sent and that have no answer yet, oldest first.
  private(set) var unanswered: [(opcode: HCIOpcode, since: Instant)] = []
  /// Packets sent since the last check: commands by name, their parameters in `lastCommand`, data as hex.
  private(set) var sent: [String] = []
  private(set) var lastCommand = ""
  /// The peer in the last command: the last octet of its address.
  private(set) var lastPeer: UInt64 = 0
  private(set) var effects: [HostEffect] = []
  /// Bonds as the core asked to store them.
  private(set) var stored: [Bond] = []
  private var texts: [String] = []
  /// Also records effects as texts, for tests that read them.
  var isReading = true
  private var packet = PacketBuffer()
  /// The controller answers the commands of the start automatically.
  var controller = PaperController()

  static let peer = PeerAddress(DeviceAddress(0x0000_5E00_5301), .public)
  static let otherPeer = PeerAddress(DeviceAddress(0xC000_5E00_5302), .random)
  static let thirdPeer = PeerAddress(DeviceAddress(0x0000_5E00_5303), .public)

  init(
    _ database: Database = Database(), controller: PaperController = PaperController(), hasChance: Bool = true,
    _ configure: (inout HostConfiguration) -> Void = { _ in }
  ) {
    var configuration = HostConfiguration(), chance = SplitMix64(seed: 0)
    configure(&configuration)
    if hasChance {
      core = HostCore(configuration: configuration, database: database, chance: &chance)
    } else {
      core = HostCore(configuration: configuration, database: database)
    }
    self.controller = controller
  }
  /// A core that has been started.
  static func started(
    _ database: Database = Database(), controller: PaperController = PaperController(), hasChance: Bool = true,
    _ configure: (inout HostConfiguration) -> Void = { _ in }
  ) -> Bench {
    var bench = Bench(database, controller: controller, hasChance: hasChance, configure)
    bench.start()
    _ = bench.takeAll()
    return bench
  }

  mutating func start() {
    core.start(now: now)
    collect()
    for _ in 0..<40 where !core.isRunning {
      guard let opcode = unanswered.first?.opcode, let answer = controller.answer(opcode) else { return }
      receive(answer)
    }
    // The HCI layer's tests check the commands of a start.
    if core.isRunning { sent = ["…"] }
  }

  // MARK: To the core

  mutating func receive(_ bytes: [UInt8]) {
    if bytes.count >= 7, bytes[0] == 4, bytes[1] == 0x0E || bytes[1] == 0x0F {
      let at = bytes[1] == 0x0E ? 4 : 5
      let opcode = HCIOpcode(rawValue: UInt16(bytes[at]) | UInt16(bytes[at + 1]) << 8)
      if let index = unanswered.firstIndex(where: { $0.opcode == opcode }) { unanswered.remove(at: index) }
    }
    core.receive(bytes.span, now: now)
    collect()
  }
  mutating func receive(_ text: String) { receive(octets(text)) }
  /// Answers the oldest unanswered command. False if there is none.
  @discardableResult mutating func answer(_ status: HCIStatus = .success) -> Bool {
    guard let opcode = unanswered.first?.opcode else { return false }
    if AnyCommand(default: opcode)?.isAnsweredByStatus == true {
      receive(commandStatus(opcode, status))
    } else {
      receive(commandComplete(opcode, status))
    }
    return true
  }
  /// Answers with success until no command is unanswered.
  mutating func answerAll() { while answer() {} }
  /// Advances the time, at most to the next deadline. After `expire` the core must have nothing more to do at that
  /// time.
  mutating func wait(_ duration: Duration) {
    let end = now + duration
    while let deadline = core.deadline, deadline <= end {
      now = max(now, deadline)
      core.expire(now: now)
      if let next = core.deadline, next <= now { Issue.record("spins: \(next) at \(now)") }
      collect()
      unanswered.removeAll { $0.since + .seconds(2) <= now }
    }
    now = end
  }
  mutating func perform(_ body: (inout HostCore, Instant) -> Void) {
    body(&core, now)
    collect()
  }

  /// A call that may write a packet into `room`.
  mutating func write<Result>(_ body: (inout HostCore, inout OutputRawSpan) -> Result) -> Result {
    var output = PacketBuffer(), result: Result?
    _ = output.fill { output in
      result = body(&core, &output)
      return true
    }
    guard let result else { preconditionFailure() }
    drain()
    if output.count > 0 { sent.append(hex(output.bytes)) }
    collect()
    return result
  }

  /// Clears the recorded effects and packets.
  mutating func forget() {
    effects = []
    sent = []
    texts = []
    stored = []
  }

  // MARK: From the core

  private mutating func collect() {
    drain()
    while packet.fill({ core.nextPacket(into: &$0, now: now) }) {
      let bytes = packet.bytes
      if bytes[0] == 1 {
        let opcode = HCIOpcode(rawValue: UInt16(bytes[1]) | UInt16(bytes[2]) << 8)
        unanswered.append((opcode, now))
        guard let command = try? AnyCommand(bytes.span) else { preconditionFailure(hex(bytes)) }
        sent.append(String("\(command.name)".dropFirst(4)) + enabling(command))
        if let peer = peer(of: command) { lastPeer = peer.value & 0xFF }
        lastCommand = command.describe(in: bytes.span)
      } else {
        sent.append(hex(bytes))
      }
      drain()
    }
  }
  private func enabling(_ command: AnyCommand) -> String {
    switch command {
    case .leSetScanEnable(let command): command.leScanEnable ? "(on)" : "(off)"
    case .leSetExtendedScanEnable(let command): command.enable ? "(on)" : "(off)"
    case .leSetAdvertisingEnable(let command): command.advertisingEnable ? "(on)" : "(off)"
    case .leSetExtendedAdvertisingEnable(let command): command.enable ? "(on)" : "(off)"
    case .leCreateConnection(let command): command.initiatorFilterPolicy == .acceptList ? "(list)" : ""
    case .leExtendedCreateConnection(let command): command.initiatorFilterPolicy == .acceptList ? "(list)" : ""
    case .leAddDeviceToFilterAcceptList(let command): "(\(number(command.address)))"
    case .leRemoveDeviceFromFilterAcceptList(let command): "(\(number(command.address)))"
    case .disconnect(let command): "(\(command.connectionHandle.rawValue), \(hexDigits(command.reason.rawValue)))"
    default: ""
    }
  }
  /// The last octet of a peer's address: 1, 2, 3.
  private func number(_ address: DeviceAddress) -> UInt64 { address.value & 0x0F }
  private func peer(of command: AnyCommand) -> DeviceAddress? {
    switch command {
    case .leCreateConnection(let command): command.peerAddress
    case .leExtendedCreateConnection(let command): command.peerAddress
    case .leAddDeviceToFilterAcceptList(let command): command.address
    case .leRemoveDeviceFromFilterAcceptList(let command): command.address
    default: nil
    }
  }
  private mutating func drain() {
    while let effect = core.nextEffect() {
      effects.append(effect)
      if case .bondChanged(let peer) = effect, let bond = core.bond(with: peer) { stored.append(bond) }
      if isReading { texts.append(text(of: effect)) }
    }
  }
  private func text(of effect: HostEffect) -> String {
    switch effect {
    case .scanStarted(let id): return "scanStarted" + suffix(id)
    case .scanStopped(let id): return "scanStopped" + suffix(id)
    case .scanFailed(let id, let status): return "scanFailed\(suffix(id)) \(hexDigits(status.rawValue))"
    case .advertisingStarted(let id): return "advertisingStarted" + number(id)
    case .advertisingStopped(let id, .stopped): return "advertisingStopped" + number(id)
    case .advertisingStopped(let id, let reason): return "advertisingStopped\(number(id)): \(reason)"
    case .advertisingFailed(let id, let status): return "advertisingFailed\(number(id)) \(hexDigits(status.rawValue))"
    case .controllerFailed(let status): return "controllerFailed \(hexDigits(status.rawValue))"
    case .startFailed(let failure): return "startFailed: \(failure)"
    case .linkUp(let link, let peer, let role, _): return "\(link) up: \(peer), \(role.text)"
    case .linkDown(let link, let reason): return "\(link) down: \(hexDigits(reason.rawValue))"
    case .completed(let id, .connected(let link)): return "\(id.rawValue): \(link)"
    case .completed(let id, .disconnected): return "\(id.rawValue): disconnected"
    case .completed(let id, .parameters(let parameters)): return "\(id.rawValue): \(parameters)"
    case .completed(let id, .phys(let phys)): return "\(id.rawValue): \(phys)"
    case .completed(let id, .features(let octets)):
      return "\(id.rawValue): features \(RemoteFeatures(core.bytes(of: octets)))"
    case .completed(let id, .rssi(let rssi)): return "\(id.rawValue): rssi \(rssi.map { "\($0)" } ?? "nil")"
    case .completed(let id, .secured(let security)): return "\(id.rawValue): \(security)"
    case .completed(let id, .done): return "\(id.rawValue): done"
    case .dataLengthChanged(let link, let length): return "\(link): \(length)"
    case .physChanged(let link, let phys): return "\(link): \(phys)"
    case .completed(let id, .failed(.parametersRejected(let status))):
      return "\(id.rawValue): parametersRejected \(hexDigits(status.rawValue))"
    case .completed(let id, .failed(.refused(let task, let status))):
      return "\(id.rawValue): refused to \(task) \(hexDigits(status.rawValue))"
    case .encryptionFailed(let link, let status): return "encryptionFailed(\(link), \(hexDigits(status.rawValue)))"
    case .completed(let id, .failed(let failure)): return "\(id.rawValue): \(failure)"
    case .completed(let id, .gatt(.failed(.bearerClosed(let reason)))): return "\(id.rawValue): bearer \(reason)"
    case .completed(let id, .gatt(let result)): return "\(id.rawValue): \(result)"
    case .discovered(let id, let discovery):
      let marks = suffix(id) + (discovery.isTruncated ? " truncated" : "")
      let response = discovery.scanResponse.map { ", response \(hex(core.bytes(of: $0)))" } ?? ""
      return "discovered\(marks): \(hex(core.bytes(of: discovery.advertising)))\(response)"
    case .parametersChanged(let link, let parameters): return "\(link): \(parameters)"
    case .violation(let link, .parametersRejected(let status)):
      return "\(link.map { "\($0) " } ?? "")parametersRejected \(hexDigits(status.rawValue))"
    case .violation(let link, .disconnectRefused(let status)):
      return "\(link.map { "\($0) " } ?? "")disconnectRefused \(hexDigits(status.rawValue))"
    case .violation(let link, .hci(.handleInUse(let handle))):
      return "\(link.map { "\($0) " } ?? "")handleInUse \(handle.rawValue)"
    case .violation(let link, let violation):
      return (link.map { "\($0) " } ?? "") + "\(violation)".prefix { $0 != "(" }
    default: return "\(effect)"
    }
  }
  private func suffix(_ id: ScanID) -> String { id.rawValue == 0 ? "" : " \(id.rawValue)" }
  private func number(_ id: AdvertisingSetID) -> String { id == .first ? "" : " \(id.rawValue)" }
  /// Adds a text for something that the core reports without an effect.
  mutating func note(_ text: String) { texts.append(text) }
  private func hexDigits(_ number: UInt8) -> String { "0x" + hex([number]) }

  /// The core's effects since the last check.
  mutating func takeTexts() -> [String] {
    defer { texts = [] }
    return texts
  }
  /// The core's packets and effects since the last check.
  mutating func takeAll() -> [String] {
    defer {
      sent = []
      texts = []
    }
    return sent + texts
  }
}

// MARK: - Packets from a controller

/// Command Complete with a status and `rest`.
func commandComplete(
  _ opcode: HCIOpcode, _ status: HCIStatus = .success, _ rest: [UInt8] = [], number: UInt8 = 1
) -> [UInt8] {
  [4, 0x0E, UInt8(4 + rest.count), number, UInt8(opcode.rawValue & 0xFF), UInt8(opcode.rawValue >> 8), status.rawValue]
    + rest
}
func commandStatus(_ opcode: HCIOpcode, _ status: HCIStatus = .success, number: UInt8 = 1) -> [UInt8] {
  [4, 0x0F, 4, status.rawValue, number, UInt8(opcode.rawValue & 0xFF), UInt8(opcode.rawValue >> 8)]
}
/// LE Advertising Report with one report: `type` 0 ADV_IND, 1 ADV_DIRECT_IND, 2 ADV_SCAN_IND, 3 ADV_NONCONN_IND, 4
/// SCAN_RSP.
func report(_ type: UInt8, _ peer: PeerAddress, _ data: [UInt8], rssi: Int8 = -56) -> [UInt8] {
  [4, 0x3E, UInt8(12 + data.count), 2, 1, type, peer.type.rawValue]
    + (0..<6).map { UInt8(truncatingIfNeeded: peer.address.value >> (8 * $0)) } + [UInt8(data.count)] + data
    + [UInt8(bitPattern: rssi)]
}
/// LE Connection Complete: 30 ms, no latency, 5 s.
func connectionComplete(
  _ handle: UInt16, _ role: LinkRole = .central, _ peer: PeerAddress = Bench.peer, _ status: HCIStatus = .success
) -> [UInt8] {
  [4, 0x3E, 19, 1, status.rawValue] + little(handle) + [role.rawValue, peer.type.rawValue]
    + (0..<6).map { UInt8(truncatingIfNeeded: peer.address.value >> (8 * $0)) } + [24, 0, 0, 0, 0xF4, 1, 0]
}
func disconnectionComplete(_ handle: UInt16, _ reason: HCIStatus = .remoteUserTerminatedConnection) -> [UInt8] {
  [4, 5, 4, 0] + little(handle) + [reason.rawValue]
}
func completedPackets(_ handle: UInt16, _ count: UInt16) -> [UInt8] {
  [4, 0x13, 5, 1] + little(handle) + little(count)
}
/// One frame in one ACL packet.
func data(_ handle: UInt16, channel: UInt16 = 4, _ payload: [UInt8]) -> [UInt8] {
  [2] + little(handle | 0x2000) + little(UInt16(payload.count + 4)) + little(UInt16(payload.count)) + little(channel)
    + payload
}
func little(_ value: UInt16) -> [UInt8] { [UInt8(value & 0xFF), UInt8(value >> 8)] }

/// The features of a scripted controller, and its answers to the commands of the start.
struct PaperController {
  var lacks: [SupportedCommandBit] = []
  /// Without data length extension, so that a new link causes no command. It has the legacy commands.
  var features: LEFeatures = .connectionParametersRequestProcedure
  /// 5.4.
  var version: UInt8 = 13
  /// A controller with the extended commands. A controller without the Connection Parameters Request procedure.
  static var old: PaperController {
    var controller = PaperController()
    controller.features = []
    return controller
  }
  static var extended: PaperController {
    var controller = PaperController()
    controller.features.insert(.leExtendedAdvertising)
    return controller
  }
  var maximumAdvertisingData: UInt16 = 1650
  /// Entries of the Filter Accept List, and of the resolving list.
  var acceptListSize: UInt8 = 0, resolvingListSize: UInt8 = 0
  var advertisingSets: UInt8 = 4
  var address: [UInt8] = [6, 5, 4, 3, 2, 1]
  var refused: [HCIOpcode: HCIStatus] = [:]
  var silent: Set<HCIOpcode> = []
  var buffers: [UInt8] = [251, 0, 8]
  var maximumOctets: UInt8 = 27

  func answer(_ opcode: HCIOpcode) -> [UInt8]? {
    if silent.contains(opcode) { return nil }
    if let status = refused[opcode] { return commandComplete(opcode, status) }
    switch opcode {
    case ReadLocalVersionInformation.opcode:
      return commandComplete(opcode, .success, [version, 0, 0, version, 0xFF, 0xFF, 0, 0])
    case ReadLocalSupportedCommands.opcode:
      var bits = [UInt8](repeating: 0xFF, count: 64)
      for bit in lacks { bits[Int(bit.octet)] &= ~(1 << bit.bit) }
      return commandComplete(opcode, .success, bits)
    case ReadLocalSupportedFeatures.opcode:
      let features: LMPFeatures = [.leSupported, .brEDRNotSupported]
      return commandComplete(opcode, .success, octets(features.rawValue))
    case LEReadLocalSupportedFeatures.opcode: return commandComplete(opcode, .success, octets(features.rawValue))
    case ReadBDADDR.opcode: return commandComplete(opcode, .success, address)
    case LEReadBufferSize.opcode: return commandComplete(opcode, .success, buffers)
    case LEReadMaximumDataLength.opcode:
      let time = 8 * (UInt16(maximumOctets) + 14)
      return commandComplete(
        opcode, .success, [maximumOctets, 0] + little(time) + [maximumOctets, 0] + little(time))
    case LEReadFilterAcceptListSize.opcode: return commandComplete(opcode, .success, [acceptListSize])
    case LEReadResolvingListSize.opcode: return commandComplete(opcode, .success, [resolvingListSize])
    case LEReadMaximumAdvertisingDataLength.opcode:
      return commandComplete(opcode, .success, little(maximumAdvertisingData))
    case LEReadNumberOfSupportedAdvertisingSets.opcode: return commandComplete(opcode, .success, [advertisingSets])
    default: return commandComplete(opcode)
    }
  }
  private func octets(_ value: UInt64) -> [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) } }
}

/// `#expect` for conditions on values that cannot be copied, which the macro cannot take apart.
func expect(_ condition: Bool, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
  #expect(condition, comment, sourceLocation: sourceLocation)
}
func same<Value: Equatable>(
  _ found: Value, _ expected: Value, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation
) {
  #expect(found == expected, comment, sourceLocation: sourceLocation)
}

// MARK: - Tables

/// Every phase of a machine × every input, as text for readers in `Fixtures/Machines`. `BINDRUNE_RECORD=1` rewrites it,
/// for a review of the difference.
struct Matrix {
  typealias Step = (name: String, act: (inout Bench) -> Void)
  /// The inputs, by name, that lead to each phase from a core that has just started.
  var paths: [[String]]
  var inputs: [Step]
  /// The machine's phase.
  var phase: (borrowing HostCore) -> String
  var controller = PaperController()

  func text() -> String {
    var text = ""
    for path in paths {
      text += (path.isEmpty ? "at the start" : "after " + path.joined(separator: ", ")) + ": "
      for (index, input) in inputs.enumerated() {
        var bench = Bench.started(controller: controller)
        for name in path { step(name).act(&bench) }
        if index == 0 { text += phase(bench.core) + "\n" }
        _ = bench.takeAll()
        input.act(&bench)
        let outcome = bench.takeAll()
        text += "  \(input.name) → \(phase(bench.core))"
        text += (outcome.isEmpty ? "" : ": " + outcome.joined(separator: ", ")) + "\n"
      }
    }
    return text
  }
  private func step(_ name: String) -> Step {
    guard let step = inputs.first(where: { $0.name == name }) else { preconditionFailure("no input \(name)") }
    return step
  }

  func check(_ file: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let url = VectorFile.fixtures.appending(path: "Machines").appending(path: file), found = text()
    if ProcessInfo.processInfo.environment["BINDRUNE_RECORD"] != nil {
      return try found.write(to: url, atomically: true, encoding: .utf8)
    }
    let expected = try String(contentsOf: url, encoding: .utf8)
    for (found, expected) in zip(found.split(separator: "\n"), expected.split(separator: "\n")) {
      #expect(found == expected, sourceLocation: sourceLocation)
    }
    #expect(found.count == expected.count, sourceLocation: sourceLocation)
  }
}
/// A phase without its payload.
func name(_ phase: Any) -> String { String("\(phase)".prefix { $0 != "(" }) }
