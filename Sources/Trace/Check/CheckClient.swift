import BindruneATT
import BindruneGATT
import BindruneHCI
import BindruneWire

/// # CheckClient
/// **Overview**: the requests of one device and the answers, notifications and indications of the other, on one bearer.
///
/// **Function**: `CheckBearer` has judged the length of each PDU. Fields are read at their offsets: an entry of a
/// list that breaks a rule must be judged too, and the list of a declaration would refuse all of it.
///
/// **Phases**: idle ↔ a request waits; and independently idle ↔ an indication waits. Vol 3, Part F, §3.3.2.
struct CheckClient {
  struct Request {
    var opcode: ATTOpcode
    var time: Int64
    /// A range of handles; of a request about one attribute, twice that.
    var start: UInt16 = 0, end: UInt16 = 0
    /// The attribute type that a list is asked for.
    var type = BluetoothUUID()
    /// The value that Find By Type Value asks for, if it is a UUID.
    var value = BluetoothUUID()
    var offset = 0
    /// The attributes of Read Multiple.
    var handles: [UInt16] = []
    /// The parameters of Prepare Write.
    var parameters: [UInt8] = []
    /// The value of a write of two octets.
    var configuration: UInt16?
    /// It asks for the attributes of a range.
    var isOfRange: Bool {
      switch opcode {
      case FindInformationRequest.opcode, FindByTypeValueRequest.opcode, ReadByTypeRequest.opcode,
        ReadByGroupTypeRequest.opcode:
        true
      default: false
      }
    }
  }
  private(set) var request: Request?
  /// The request that was sent last.
  private(set) var latest: Request?
  /// When a request, and an indication, was sent that has not been answered in time.
  private var lateRequest: Int64?, lateIndication: Int64?
  /// A request may wait that the trace does not show.
  private var mayHaveRequest = true
  /// Requests that wait since the client sent one while another waited: which one an answer is for is not known.
  private var unanswered = 0
  /// When the indication that waits for its confirmation was sent.
  private var indication: Int64?
  private var mayHaveIndication = true
  /// What the client and the server offer in the exchange of MTUs.
  var offer: Int?, answer: Int?

  mutating func begin(_ isFromStart: Bool) {
    mayHaveRequest = !isFromStart
    mayHaveIndication = !isFromStart
  }
  mutating func lose() {
    request = nil
    indication = nil
    mayHaveRequest = true
    mayHaveIndication = true
    unanswered = 0
  }

  // MARK: Time

  /// A transaction that is not completed in this time has failed. Vol 3, Part F, §3.3.3.
  private static var timeout: Int64 { 30_000_000_000 }
  /// When what waits will have waited too long; ``Int64/max``: nothing waits.
  var dueTime: Int64 {
    min(request.map { $0.time &+ Self.timeout } ?? .max, indication.map { $0 &+ Self.timeout } ?? .max)
  }
  /// Judges what has waited too long. `place`: 0 if the client is the host's. `lastSeen`: when both devices were
  /// certainly there.
  mutating func timePasses(_ place: Int, lastSeen: Int64, _ report: inout CheckReport) {
    // Whether the peer was there does not matter where the host has to answer.
    if let waiting = request, isLate(waiting.time, place == 0 ? lastSeen : report.time, report.time) {
      judgeLate(waiting.time, waiting.opcode, by: place == 0 ? .peer : .host, &report)
      lateRequest = waiting.time
      // Its answer may still come.
      (request, mayHaveRequest) = (nil, true)
    }
    if let waiting = indication, isLate(waiting, place == 0 ? report.time : lastSeen, report.time) {
      judgeLate(waiting, HandleValueIndication.opcode, by: place == 0 ? .host : .peer, &report)
      lateIndication = waiting
      (indication, mayHaveIndication) = (nil, true)
    }
  }
  /// A longer time than an hour is a clock that was set.
  private func isLate(_ since: Int64, _ lastSeen: Int64, _ now: Int64) -> Bool {
    let (elapsed, hasOverflow) = lastSeen.subtractingReportingOverflow(since)
    let (total, overflows) = now.subtractingReportingOverflow(since)
    return !hasOverflow && !overflows && elapsed > Self.timeout && total < 3_600_000_000_000
  }
  private func judgeLate(
    _ since: Int64, _ opcode: ATTOpcode, by party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let seconds = (report.time - since) / 1_000_000_000, subject = report.subject
    report.subject = .attribute(opcode)
    report.judge(
      .transactionTimeout, false, by: party, seen: "no answer to \(opcode) for \(seconds) s", allowed: "30 s")
    report.subject = subject
  }
  /// Whether the client, at most `delay` after the trace shows its request, had given it up by `time`.
  func requestTimedOut(by time: Int64, _ delay: Int64) -> Bool {
    Self.timedOut(lateRequest ?? request?.time, time, delay)
  }
  /// The same of the server and its indication.
  func indicationTimedOut(by time: Int64, _ delay: Int64) -> Bool {
    Self.timedOut(lateIndication ?? indication, time, delay)
  }
  private static func timedOut(_ since: Int64?, _ time: Int64, _ delay: Int64) -> Bool {
    guard let since else { return false }
    let (elapsed, hasOverflow) = time.subtractingReportingOverflow(since)
    return !hasOverflow && elapsed > timeout + delay && elapsed < 3_600_000_000_000
  }

  // MARK: From the client

  mutating func undefined(_ opcode: ATTOpcode, _ report: inout CheckReport) {
    guard request == nil else { return }
    // The server may also ignore it.
    mayHaveRequest = true
  }

  mutating func fromClient(
    _ pdu: Span<UInt8>, _ database: inout CheckDatabase, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let opcode = ATTOpcode(rawValue: pdu[0])
    if let indication, opcode == HandleValueConfirmation.opcode { answered(since: indication, opcode, party, &report) }
    switch opcode {
    case HandleValueConfirmation.opcode:
      if indication != nil || !mayHaveIndication {
        report.judge(
          .confirmationAsked, indication != nil, by: party, seen: "a confirmation",
          allowed: "none without an indication")
      }
      indication = nil
      mayHaveIndication = false
    case WriteCommand.opcode, SignedWriteCommand.opcode:
      handle(pdu.little16(1), party, &report)
      if opcode == WriteCommand.opcode { value(pdu.count - 3, party, &report) }
      database.written(pdu.little16(1))
    default: begin(opcode, pdu, &database, party, &report)
    }
  }
  private mutating func begin(
    _ opcode: ATTOpcode, _ pdu: Span<UInt8>, _ database: inout CheckDatabase, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    if let waiting = request {
      report.judge(
        .oneRequest, false, by: party, seen: "\(opcode) while \(waiting.opcode) waits", allowed: "the response first")
      unanswered = 1
      database.doubt(waiting)
      request = nil
    } else if unanswered == 0 {
      report.judge(.oneRequest, true, by: party, seen: "", allowed: "")
    }
    mayHaveRequest = false
    var new = Request(opcode: opcode, time: report.time)
    switch opcode {
    case FindInformationRequest.opcode, FindByTypeValueRequest.opcode, ReadByTypeRequest.opcode,
      ReadByGroupTypeRequest.opcode:
      (new.start, new.end) = (pdu.little16(1), pdu.little16(3))
      new.type =
        switch opcode {
        case FindInformationRequest.opcode: BluetoothUUID()
        case FindByTypeValueRequest.opcode: .short(pdu.little16(5))
        default: pdu.uuid(5..<pdu.count)
        }
      if opcode == FindByTypeValueRequest.opcode { new.value = pdu.uuid(7..<pdu.count) }
      handle(new.start, party, &report)
      report.judge(
        .handleRangeOrder, new.start <= new.end, by: party, seen: "\(code(new.start, 4)) to \(code(new.end, 4))",
        allowed: "the lesser one first")
      if opcode == ReadByGroupTypeRequest.opcode {
        report.judge(
          .groupingType, new.type.isService, by: party, seen: "the type \(new.type.text)", allowed: "0x2800 or 0x2801")
      }
    case ReadRequest.opcode, ReadBlobRequest.opcode, WriteRequest.opcode, PrepareWriteRequest.opcode:
      (new.start, new.end) = (pdu.little16(1), pdu.little16(1))
      handle(new.start, party, &report)
      if opcode == ReadBlobRequest.opcode || opcode == PrepareWriteRequest.opcode { new.offset = Int(pdu.little16(3)) }
      if opcode == WriteRequest.opcode {
        let written = pdu.extracting(droppingFirst: 3)
        value(written.count, party, &report)
        if written.count == 2 { new.configuration = written.little16(0) }
        database.writing(new.start, written, party, &report)
      }
      if opcode == PrepareWriteRequest.opcode {
        new.parameters = pdu.extracting(droppingFirst: 1).array
        database.prepares(new.start)
      }
    case ReadMultipleRequest.opcode, ReadMultipleVariableRequest.opcode:
      report.judge(
        .multipleHandles, pdu.count >= 5, by: party, seen: "one attribute", allowed: "two attributes or more")
      var at = 1
      while at + 1 < pdu.count {
        handle(pdu.little16(at), party, &report)
        new.handles.append(pdu.little16(at))
        at += 2
      }
    case ExecuteWriteRequest.opcode:
      report.judge(.executeFlags, pdu[1] <= 1, by: party, seen: code(pdu[1]), allowed: "0x00 or 0x01")
    default: break
    }
    latest = new
    if unanswered == 0 {
      request = new
    } else {
      unanswered += 1
      database.doubt(new)
    }
  }

  private func handle(_ handle: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    report.judge(.handleZero, handle != 0, by: party, seen: "0x0000", allowed: "0x0001 to 0xFFFF")
  }
  private func value(_ count: Int, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    report.judge(.valueLength, count <= 512, by: party, seen: "\(count) octets", allowed: "at most 512")
  }
  /// 30 s between question and answer. A longer time than an hour is a clock that was set.
  private func answered(
    since time: Int64, _ opcode: ATTOpcode, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let (elapsed, hasOverflow) = report.time.subtractingReportingOverflow(time)
    guard !hasOverflow, elapsed >= 0, elapsed < 3_600_000_000_000 else { return }
    report.judge(
      .transactionTimeout, elapsed <= 30_000_000_000, by: party,
      seen: "\(opcode) after \(elapsed / 1_000_000_000) s", allowed: "30 s")
  }

  // MARK: From the server

  /// `writing`: what the client writes on all bearers, as `CheckDatabase.notified` has it.
  mutating func fromServer(
    _ pdu: Span<UInt8>, _ database: inout CheckDatabase, writing: [(handle: UInt16, value: UInt16)],
    _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let opcode = ATTOpcode(rawValue: pdu[0])
    switch opcode {
    case HandleValueNotification.opcode, HandleValueIndication.opcode:
      handle(pdu.little16(1), party, &report)
      value(pdu.count - 3, party, &report)
      if opcode == HandleValueIndication.opcode { indicates(party, &report) }
      database.notified(
        pdu.little16(1), pdu.extracting(droppingFirst: 3), isIndication: opcode == HandleValueIndication.opcode,
        writing: writing, party, &report)
    case MultipleHandleValueNotification.opcode: multiple(pdu, &database, party, &report)
    default: respond(opcode, pdu, &database, party, &report)
    }
  }
  private mutating func indicates(_ party: CheckFinding.Party, _ report: inout CheckReport) {
    if indication != nil || !mayHaveIndication {
      report.judge(
        .oneIndication, indication == nil, by: party, seen: "an indication while another waits",
        allowed: "the confirmation first")
    }
    indication = report.time
    mayHaveIndication = false
  }
  private func multiple(
    _ pdu: Span<UInt8>, _ database: inout CheckDatabase, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    var at = 1, count = 0
    while at + 4 <= pdu.count, at + 4 + Int(pdu.little16(at + 2)) <= pdu.count {
      handle(pdu.little16(at), party, &report)
      count += 1
      at += 4 + Int(pdu.little16(at + 2))
    }
    report.judge(
      .multipleNotification, at == pdu.count && count >= 2, by: party,
      seen: at == pdu.count ? "\(count) values" : "a length beyond the PDU", allowed: "two whole values or more")
    database.notifiedMultiple(party, &report)
  }
  /// A write of two octets waits for its response: the server may already act on it.
  var pendingConfiguration: (handle: UInt16, value: UInt16)? {
    guard let request, let value = request.configuration else { return nil }
    return (request.start, value)
  }

  private mutating func respond(
    _ opcode: ATTOpcode, _ pdu: Span<UInt8>, _ database: inout CheckDatabase, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    if unanswered > 0 {
      unanswered -= 1
      return
    }
    if request != nil || !mayHaveRequest {
      report.judge(
        .responseAsked, request != nil, by: party, seen: opcode.description, allowed: "none without a request"
      )
    }
    mayHaveRequest = false
    guard let asked = request.take() else { return }
    report.judge(
      .responseKind, opcode == asked.opcode.response || opcode == ErrorResponse.opcode, by: party,
      seen: "\(opcode) to \(asked.opcode)",
      allowed: "\(asked.opcode.response?.description ?? "") or ATT_ERROR_RSP")
    answered(since: asked.time, opcode, party, &report)
    if opcode == ErrorResponse.opcode {
      if pdu[4] == ATTError.attributeNotFound.rawValue { database.notFound(asked, party, &report) }
      return error(pdu, asked, party, &report)
    }
    guard opcode == asked.opcode.response else { return }
    switch opcode {
    case FindInformationResponse.opcode: information(pdu, asked, &database, party, &report)
    case FindByTypeValueResponse.opcode: found(pdu, asked, &database, party, &report)
    case ReadByTypeResponse.opcode, ReadByGroupTypeResponse.opcode: list(pdu, asked, &database, party, &report)
    case ReadResponse.opcode:
      value(pdu.count - 1, party, &report)
      database.reads(asked.start, party, &report)
      database.read(asked.start, pdu.extracting(droppingFirst: 1), party, &report)
    case ReadBlobResponse.opcode:
      value(asked.offset + pdu.count - 1, party, &report)
      database.reads(asked.start, party, &report)
    case ReadMultipleResponse.opcode, ReadMultipleVariableResponse.opcode:
      for handle in asked.handles { database.reads(handle, party, &report) }
    case WriteResponse.opcode:
      database.writes(asked.start, party, &report)
      if let value = asked.configuration { database.configured(asked.start, value) }
      database.confirmed(asked.start)
    case PrepareWriteResponse.opcode:
      let isEqual = pdu.extracting(droppingFirst: 1).array == asked.parameters
      report.judge(.prepareEcho, isEqual, by: party, seen: "other octets", allowed: "the request's")
    default: break
    }
  }

  /// Errors about a whole range of handles: they name its first one. Vol 3, Part F, §3.4.3.1, §3.4.3.3, §3.4.4.1,
  /// §3.4.4.9.
  private enum ErrorOfRange: UInt8, CustomStringConvertible {
    case invalidHandle = 0x01
    case attributeNotFound = 0x0A
    case unsupportedGroupType = 0x10
    var description: String {
      switch self {
      case .invalidHandle: "Invalid Handle"
      case .attributeNotFound: "Attribute Not Found"
      case .unsupportedGroupType: "Unsupported Group Type"
      }
    }
  }

  private func error(
    _ pdu: Span<UInt8>, _ asked: Request, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    report.judge(
      .errorRequest, pdu[1] == asked.opcode.rawValue, by: party, seen: ATTOpcode(rawValue: pdu[1]).description,
      allowed: asked.opcode.description)
    let handle = pdu.little16(2), error = pdu[4]
    if asked.isOfRange, let code = ErrorOfRange(rawValue: error) {
      report.judge(
        .errorHandle, handle == asked.start, by: party, seen: "\(code): \(BindruneTrace.code(handle, 4))",
        allowed: "the starting handle \(BindruneTrace.code(asked.start, 4))")
    } else if asked.start != 0, asked.start <= asked.end {
      report.judge(
        .errorHandle, handle == 0 || (asked.start...asked.end).contains(handle), by: party, seen: code(handle, 4),
        allowed: asked.start == asked.end
          ? "\(code(asked.start, 4)) or 0x0000" : "\(code(asked.start, 4)) to \(code(asked.end, 4)), or 0x0000")
    }
    let isDefined: Bool =
      switch error {
      case 0x01...0x13, 0x80...0x9F, 0xE0...0xFF: true
      default: false
      }
    report.judge(
      .errorCode, isDefined, by: party, seen: code(error), allowed: "0x01 to 0x13, 0x80 to 0x9F, 0xE0 to 0xFF")
  }

  // MARK: Lists

  /// A handle of a list: it lies in the range that was asked for and is greater than the one before.
  private func entry(
    _ handle: UInt16, after last: UInt16, _ asked: Request, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    report.judge(
      .listInRange, handle >= asked.start && handle <= asked.end, by: party, seen: code(handle, 4),
      allowed: "\(code(asked.start, 4)) to \(code(asked.end, 4))")
    report.judge(
      .listAscending, handle > last, by: party, seen: "\(code(handle, 4)) after \(code(last, 4))",
      allowed: "a greater handle")
  }
  private func uniform(
    _ isSound: Bool, _ count: Int, _ length: Int, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    report.judge(
      .listUniform, isSound, by: party, seen: "\(count) octets in entries of \(length)", allowed: "whole entries")
  }

  private func information(
    _ pdu: Span<UInt8>, _ asked: Request, _ database: inout CheckDatabase, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    let format = pdu[1]
    report.judge(.informationFormat, format == 1 || format == 2, by: party, seen: code(format), allowed: "0x01 or 0x02")
    guard format == 1 || format == 2 else { return }
    let size = format == 1 ? 4 : 18
    uniform((pdu.count - 2) % size == 0, pdu.count - 2, size, party, &report)
    var at = 2, last: UInt16 = 0
    while at + size <= pdu.count {
      let handle = pdu.little16(at)
      entry(handle, after: last, asked, party, &report)
      database.attribute(handle, pdu.uuid(at + 2..<at + size), party, &report)
      last = handle
      at += size
    }
    database.explored(asked.start, last, party, &report)
  }
  private func found(
    _ pdu: Span<UInt8>, _ asked: Request, _ database: inout CheckDatabase, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    uniform((pdu.count - 1) % 4 == 0, pdu.count - 1, 4, party, &report)
    var at = 1, last: UInt16 = 0
    while at + 4 <= pdu.count {
      let handle = pdu.little16(at), end = pdu.little16(at + 2)
      entry(handle, after: last, asked, party, &report)
      report.judge(
        .foundGroupEnd, end >= handle, by: party, seen: "\(code(handle, 4)) to \(code(end, 4))",
        allowed: "\(code(handle, 4)) or more")
      database.attribute(handle, asked.type, party, &report)
      if asked.type.isService { database.service(handle, end, party, &report) }
      if asked.type == .primaryService { database.once(asked.value, handle, party, &report) }
      last = handle
      at += 4
    }
  }
  private func list(
    _ pdu: Span<UInt8>, _ asked: Request, _ database: inout CheckDatabase, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    let isGroup = asked.opcode == ReadByGroupTypeRequest.opcode, size = Int(pdu[1]), header = isGroup ? 4 : 2
    uniform(size >= header && (pdu.count - 2) % max(1, size) == 0, pdu.count - 2, size, party, &report)
    guard size >= header else { return }
    var at = 2, last: UInt16 = 0, lastEnd: UInt16 = 0
    while at + size <= pdu.count {
      let handle = pdu.little16(at)
      entry(handle, after: last, asked, party, &report)
      database.attribute(handle, asked.type, party, &report)
      if !isGroup { database.reads(handle, party, &report) }
      last = handle
      if isGroup {
        let end = pdu.little16(at + 2)
        report.judge(
          .groupEnd, end >= handle && handle > lastEnd, by: party,
          seen: "\(code(handle, 4)) to \(code(end, 4)) after \(code(lastEnd, 4))",
          allowed: "groups one behind the other")
        lastEnd = end
        database.declaredService(handle, end, pdu.extracting(at + 4..<at + size), party, &report)
      } else {
        let next = at + 2 * size <= pdu.count ? pdu.little16(at + size) : nil
        database.declared(asked.type, handle, pdu.extracting(at + 2..<at + size), before: next, party, &report)
      }
      at += size
    }
  }
}

extension Span<UInt8> {
  /// A UUID of 2 octets, or 16.
  func uuid(_ range: Range<Int>) -> BluetoothUUID {
    let declaration = try? WireDecoder.decode(
      ServiceDeclaration.self, self, from: range.lowerBound, to: range.upperBound)
    return declaration?.serviceUUID ?? BluetoothUUID()
  }
}

extension BluetoothUUID {
  /// The attribute type of a service's declaration.
  var isService: Bool { self == .primaryService || self == .secondaryService }
  /// `0x2800`, or the digits of one with 32 or 128 bits.
  var text: String { if case .short = shortest { "0x\(self)" } else { description } }
}
