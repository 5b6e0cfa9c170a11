import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # CheckAdapter
/// **Overview**: what a trace shows about one controller and its connections, for ``Checker``. A state that is nil is
/// not known.
struct CheckAdapter {
  let number: UInt16
  /// The trace shows the controller's reset: nothing is older than that.
  var isFromStart = false
  var links: [CheckLink] = []
  /// False after an event that may have opened a connection and could not be read.
  private var knowsLinks = true
  /// Handles of connections that have ended, the latest last.
  var closed: [UInt16] = []
  /// The controller has broadcast streams, whose handles the checks do not follow.
  var hasStreams = false
  var advertisingData = CheckAdvertisingData()
  /// Devices of which a report with a part of their data was the last. Vol 4, Part E, §7.7.65.13.
  var partlyReported: Set<UInt64> = []
  static var mostPartlyReported: Int { 256 }

  // MARK: Commands

  /// Commands that wait for Command Complete or Command Status.
  var pending: [PendingCommand] = []
  /// Commands may wait that are not in `pending`.
  var mayHavePending = true
  /// How many commands the host may send now.
  var commandCredits: Int?
  /// The commands that the controller supports.
  var supported: SupportedCommands?
  /// The length of the return parameters of each command that has had sound ones.
  var returnLengths: [HCIOpcode: Int] = [:]

  struct PendingCommand {
    var opcode: HCIOpcode
    /// What the command asks for: a switch, a mask, or an advertising handle. nil: not known.
    var argument: UInt64?
  }
  /// Opcodes of commands that may wait at a time; more are not followed.
  static var mostPending: Int { 64 }

  // MARK: What the controller does

  /// Legacy advertising is enabled.
  var isAdvertising: Bool?
  var isScanning: Bool?
  /// A connection is being created.
  var isInitiating: Bool?
  var resolvesAddresses: Bool?
  /// The advertising sets that have parameters, and whether they are enabled.
  var sets: [UInt8: Bool] = [:]
  var knowsSets = false
  var hasAdvertised = false, hasInitiated = false
  var usesLegacy = false, usesExtended = false
  var eventMask: UInt64?, eventMaskLE: UInt64?

  // MARK: Data

  /// The controller's buffers for LE data; 0: LE shares those of BR/EDR.
  private var buffersLE: Int?, buffersClassic: Int?
  private var dataSize: Int?
  /// The host begins frames with the flag 00, so a frame that begins with 10 is the controller's, also in a format
  /// without directions.
  private var marksFrames = false
  /// Every ACL packet so far had a direction, so that the host's can be counted.
  private var countsPackets = true

  init(_ number: UInt16) { self.number = number }

  /// The directions of this record's ACL data are certain.
  func knowsDirections(_ record: CaptureRecord) -> Bool { record.direction != nil || marksFrames }

  /// The trace ends, or the adapter.
  mutating func end(_ report: inout CheckReport) {
    for index in links.indices { links[index].attributes.end(&report) }
  }
  /// The controller was reset. Vol 4, Part E, §7.3.2.
  mutating func reset(_ report: inout CheckReport) {
    end(&report)
    var new = CheckAdapter(number)
    (new.isFromStart, new.mayHavePending, new.knowsSets) = (true, false, true)
    (new.isAdvertising, new.isScanning, new.isInitiating, new.resolvesAddresses) = (false, false, false, false)
    (new.buffersLE, new.buffersClassic, new.dataSize) = (buffersLE, buffersClassic, dataSize)
    (new.marksFrames, new.countsPackets) = (marksFrames, countsPackets)
    (new.commandCredits, new.returnLengths, new.advertisingData) = (commandCredits, returnLengths, advertisingData)
    new.supported = supported
    self = new
  }

  // MARK: Packets

  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    // A packet of which its recorder kept nothing has had a type.
    if bytes.count == 0, record.isCut { return lose() }
    let party: CheckFinding.Party = record.direction == .fromHost ? .host : .controller
    report.judge(.packetType, bytes.count > 0, by: party, seen: "an empty packet", allowed: "0x01 to 0x05")
    guard bytes.count > 0 else { return }
    guard let type = HCIPacketType(rawValue: bytes[0]) else { return report.remark(.packetType(bytes[0])) }
    switch type {
    case .command:
      report.judge(
        .commandDirection, record.direction != .fromController, by: .controller, seen: "a command to the host",
        allowed: "a command to the controller")
      command(record, bytes, &report)
    case .event:
      report.judge(
        .eventDirection, record.direction != .fromHost, by: .host, seen: "an event to the controller",
        allowed: "an event to the host")
      event(record, bytes, &report)
    case .acl: data(record, bytes, &report)
    case .synchronous, .iso: break
    }
    for index in links.indices where report.time >= links[index].attributes.dueTime {
      links[index].timePasses(&report)
    }
  }

  private mutating func data(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    let party: CheckFinding.Party = record.direction == .fromHost ? .host : .controller
    guard bytes.count >= ACLPacket.headerCount else {
      // It may have been of any connection.
      for index in links.indices { links[index].lose() }
      if record.isCut { return }
      return report.judge(
        .dataLength, false, by: party, seen: "\(bytes.count) octets", allowed: "a header of \(ACLPacket.headerCount)")
    }
    let word = bytes.little16(1), handle = word & 0x0FFF, flag = word >> 12 & 3
    let declared = Int(bytes.little16(3)), actual = record.originalCount - ACLPacket.headerCount
    if isVendorData(handle, record.direction) { return report.remark(.vendorData(handle: handle)) }
    report.connection = handle
    report.judge(
      .dataLength, declared == actual, by: party, seen: "Data_Total_Length \(declared) with \(actual) octets",
      allowed: "\(actual)")
    handleRange(handle, by: party, &report)
    // Only the host uses this flag: Vol 4, Part E, §5.4.2.
    if record.direction == nil {
      countsPackets = false
      if flag == 0 { marksFrames = true }
    }
    let place = link(handle, by: party, .dataConnection, &report)
    if let place {
      report.of(links[place])
      if record.direction != .fromController { links[place].isConfirmed = true }
    }
    guard let direction = record.direction, let place, links[place].transport == .le else { return }
    let isSound = (flag == 1 || flag == (direction == .fromHost ? 0 : 2)) && word >> 14 == 0
    report.judge(
      .dataFlags, isSound, by: party, seen: "boundary flag \(flag), broadcast flag \(word >> 14)",
      allowed: direction == .fromHost ? "0 or 1, and 0" : "2 or 1, and 0")
    guard direction == .fromHost else { return }
    links[place].sent? += 1
    if let dataSize {
      report.judge(
        .dataSize, declared <= dataSize, by: .host, seen: "\(declared) octets", allowed: "at most \(dataSize)")
    }
    buffers(&report)
  }
  /// Data of the controller that belongs to no connection, but to its manufacturer.
  private func isVendorData(_ handle: UInt16, _ direction: HCIDirection?) -> Bool {
    if direction == .fromHost || links.contains(where: { $0.handle == handle }) || closed.contains(handle) {
      return false
    }
    return VendorData.isPossible(handle) || (isFromStart && knowsLinks && links.count < Checker.mostLinks)
  }
  /// The packets in the controller are not more than it has buffers.
  private func buffers(_ report: inout CheckReport) {
    guard countsPackets, let buffersLE else { return }
    let isShared = buffersLE == 0
    guard let limit = isShared ? buffersClassic : buffersLE, limit > 0,
      links.allSatisfy({ $0.isFromStart || (!isShared && $0.transport == .classic) })
    else { return }
    var sent = 0
    for index in links.indices where isShared || links[index].transport == .le {
      guard let ofLink = links[index].sent else { return }
      sent += ofLink
    }
    report.judge(
      .dataCredits, sent <= limit, by: .host, seen: "\(sent) packets in the controller", allowed: "at most \(limit)")
  }
  /// Number Of Completed Packets. Vol 4, Part E, §7.7.19.
  mutating func completed(_ handle: UInt16, _ count: Int, _ report: inout CheckReport) {
    report.connection = handle
    guard let place = link(handle, by: .controller, .eventConnection, &report) else { return }
    links[place].isConfirmed = true
    report.of(links[place])
    links[place].isAlive(&report)
    guard let sent = links[place].sent else { return }
    if countsPackets, links[place].isFromStart, links[place].transport == .le {
      report.judge(
        .completedPackets, count <= sent, by: .controller, seen: "\(count) packets completed",
        allowed: "at most \(sent)")
    }
    // How many are left after a wrong count is not known.
    links[place].sent = count <= sent ? sent - count : nil
  }
  /// What the controller reports about its buffers.
  mutating func bufferSize(_ size: Int, _ count: Int, isLE: Bool) {
    if isLE {
      buffersLE = count
      if count > 0 { dataSize = size }
    } else {
      buffersClassic = count
      if buffersLE == 0 { dataSize = size }
    }
  }

  // MARK: Connections

  func handleRange(_ handle: UInt16, by party: CheckFinding.Party, _ report: inout CheckReport) {
    report.judge(
      .handleRange, handle <= 0x0EFF, by: party, seen: "connection handle \(code(handle, 4))", allowed: "at most 0x0EFF"
    )
  }
  /// The connection with this handle, judged by `rule`; nil if there is none. A trace that begins in the middle has
  /// connections whose beginning it does not show.
  mutating func link(
    _ handle: UInt16, by party: CheckFinding.Party, _ rule: CheckRule, _ report: inout CheckReport
  ) -> Int? {
    if let place = links.firstIndex(where: { $0.handle == handle }) {
      report.judge(rule, true, by: party, seen: "", allowed: "")
      return place
    }
    let isClosed = closed.contains(handle)
    if isClosed || (isFromStart && knowsLinks && !hasStreams && links.count < Checker.mostLinks) {
      report.judge(
        rule, false, by: party,
        seen: "connection \(code(handle, 4)), which \(isClosed ? "has ended" : "nobody opened")",
        allowed: links.isEmpty ? "none" : links.map { code($0.handle, 4) }.joined(separator: ", "))
      return nil
    }
    var link = CheckLink(handle, .unknown, isFromStart: false)
    link.isConfirmed = report.believesHandles
    return open(link)
  }
  @discardableResult mutating func open(_ link: CheckLink) -> Int? {
    links.removeAll { $0.handle == link.handle }
    closed.removeAll { $0 == link.handle }
    guard links.count < Checker.mostLinks else { return nil }
    links.append(link)
    return links.count - 1
  }
  mutating func close(_ handle: UInt16, _ report: inout CheckReport) {
    for index in links.indices where links[index].handle == handle { links[index].attributes.end(&report) }
    links.removeAll { $0.handle == handle }
    closed.removeAll { $0 == handle }
    if closed.count == Checker.mostLinks { closed.removeFirst() }
    closed.append(handle)
  }

  // MARK: Frames

  mutating func receive(
    _ frame: TraceFrame, _ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport
  ) {
    guard let place = links.firstIndex(where: { UInt32($0.handle) == frame.connection }) else { return }
    // Each fragment up to this one kept the rules that `receive(_:_:_:of:)` judges.
    report.judge(.fragmentOrder, true, by: direction.sender, seen: "", allowed: "")
    report.judge(.frameComplete, true, by: direction.sender, seen: "", allowed: "")
    report.judge(.frameOverlong, true, by: direction.sender, seen: "", allowed: "")
    report.of(links[place])
    report.subject = .channel(frame.channel)
    links[place].receive(frame, direction, payload, &report)
  }

  /// A packet of the connection belongs to no frame that can be read.
  mutating func lost(_ handle: UInt16) {
    for index in links.indices where links[index].handle == handle { links[index].lose() }
  }

  mutating func enhancedPDU(
    _ frame: TraceFrame, _ direction: HCIDirection, _ pdu: Span<UInt8>, _ report: inout CheckReport
  ) {
    guard let place = links.firstIndex(where: { UInt32($0.handle) == frame.connection }) else { return }
    report.of(links[place])
    links[place].enhancedPDU(frame, direction, pdu, &report)
  }

  mutating func receive(
    _ violation: L2CAPViolation, _ handle: UInt16, _ direction: HCIDirection, _ report: inout CheckReport
  ) {
    guard let place = links.firstIndex(where: { $0.handle == handle }) else { return }
    report.of(links[place])
    let party = direction.sender, text = violation.sentence
    switch violation {
    // The beginning of a frame may be before that of the trace.
    case .orphanFragment where links[place].isFromStart:
      report.judge(.fragmentOrder, false, by: party, seen: text, allowed: "a first fragment")
    case .incompleteFrame:
      report.judge(.frameComplete, false, by: party, seen: text, allowed: "a continuing fragment")
    case .overlongFragment(_, let expected):
      report.judge(.frameOverlong, false, by: party, seen: text, allowed: "\(expected) octets")
    default: break
    }
    // Whatever the frame had is lost.
    links[place].lose()
  }

  // MARK: What is not known

  /// A packet of any kind.
  private mutating func lose() {
    loseReplies()
    loseConnections()
    for index in links.indices { links[index].lose() }
    for event in [EncryptionChange.code, NumberOfCompletedPackets.code] { lose(event, nil) }
    (knowsSets, isScanning) = (false, nil)
  }
  /// A command, or an answer to one: what the host asked for, and whether it has it, is not known.
  mutating func loseReplies() {
    pending.removeAll()
    (commandCredits, mayHavePending) = (nil, true)
    (isAdvertising, isScanning, isInitiating, resolvesAddresses) = (nil, nil, nil, nil)
    (eventMask, eventMaskLE, knowsSets) = (nil, nil, false)
  }
  /// An event that may have opened a connection, or ended one.
  private mutating func loseConnections() {
    (knowsLinks, isAdvertising, isInitiating) = (false, nil, nil)
    for index in links.indices {
      links[index].mayHaveEnded = true
      links[index].sent = nil
    }
  }
  /// An event that cannot be read: what it may have changed is not known until the trace shows it again. `subevent`: of
  /// an LE event; nil if that cannot be read, either.
  mutating func lose(_ event: UInt8, _ subevent: UInt8?) {
    switch event {
    case CommandComplete.code, CommandStatus.code: loseReplies()
    case NumberOfCompletedPackets.code: for index in links.indices { links[index].sent = nil }
    case DisconnectionComplete.code, ClassicConnectionComplete.code: loseConnections()
    case EncryptionChange.code, EncryptionChangeV2.code, EncryptionKeyRefreshComplete.code:
      for index in links.indices { links[index].loseEncryption() }
    case LEConnectionComplete.code:
      switch subevent {
      case LEConnectionComplete.subeventCode, LEEnhancedConnectionComplete.subeventCode, 0x29: loseConnections()
      case LEScanTimeout.subeventCode: isScanning = nil
      case LEAdvertisingSetTerminated.subeventCode: (knowsSets, isAdvertising) = (false, nil)
      case LELongTermKeyRequest.subeventCode: for index in links.indices { links[index].keyRequested = nil }
      case nil:
        loseConnections()
        (isScanning, knowsSets) = (nil, false)
        for index in links.indices { links[index].keyRequested = nil }
      default: break
      }
    default: break
    }
  }
}
