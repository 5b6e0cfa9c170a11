import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # CheckSignals
/// **Overview**: the LE signaling channel of a connection, and the credit-based channels that it opens, for
/// ``Checker``. Vol 3, Part A, §4 and §10.1.
///
/// **Function**: a channel is two endpoints, one at each device. A device gives the other credits for its own endpoint,
/// and states there what it can receive. A command is decoded after `lengthProblem` has judged its length. What a gap
/// of the trace leaves open, about an endpoint or a request, is not judged.
struct CheckSignals {
  /// The receiving end of a channel.
  private struct Endpoint {
    /// The device that has it.
    var owner: HCIDirection
    var channel: ChannelID
    /// The other end's identifier.
    var other: ChannelID
    var mtu: Int, mps: Int
    /// Frames that the other device may send now.
    var credits: Int
    /// Of a request that can be reconfigured.
    var isEnhanced: Bool
    /// Octets of an SDU that are still to come; 0 between two.
    var remaining = 0
    /// Every frame of it is in the trace.
    var isCertain = true
    /// Its device may have given up before the response, or refused that: until it uses the channel.
    var isAssumed = false
  }
  /// What a device states of its own endpoint.
  private struct Terms { var mtu: UInt16, mps: UInt16, credits: UInt16 }
  private struct Request {
    var code: SignalCode
    /// The whole command, to which ranges in `signal` refer. None of one that broke a rule.
    var octets: [UInt8] = []
    var signal: AnySignal?
    /// Since when the answer has been due for `limit`; nil: none is, or it may be in a gap.
    var since: Int64?
    var limit = Request.responseLimit
    /// The greatest values of RTX and ERTX, in nanoseconds.
    static var responseLimit: Int64 { 60_000_000_000 }
    static var furtherLimit: Int64 { 300_000_000_000 }
    /// The code of the answer, unless that is Command Reject.
    var response: SignalCode { SignalCode(rawValue: code.rawValue &+ 1) }
  }
  /// Endpoints that are followed.
  private static var mostEndpoints: Int { 128 }

  var isFromStart = false {
    didSet { isCertain = isFromStart }
  }
  /// Every command of the connection is in the trace.
  private var isCertain = false
  /// Requests without an answer, by their identifier: the host's and the peer's.
  private var waiting: [[UInt8: Request]] = [[:], [:]]
  /// The last request that was answered, the host's and the peer's: it may come again, if it has crossed the answer.
  private var answered: [[UInt8]] = [[], []]
  private var endpoints: [Endpoint] = []

  mutating func lose() {
    isCertain = false
    for place in waiting.indices {
      for identifier in waiting[place].keys { waiting[place][identifier]?.since = nil }
    }
    for index in endpoints.indices {
      endpoints[index].isCertain = false
      endpoints[index].remaining = 0
    }
  }

  /// The numbers of the host's ends.
  var hostChannels: [ChannelID] { endpoints.lazy.filter { $0.owner == .fromHost }.map { $0.channel } }
  /// ATT_MTU of the enhanced bearer whose channel has this number at the host; nil: not known. Vol 3, Part G, §5.3.1.
  func bearerMTU(_ number: ChannelID) -> Int? {
    guard let own = endpoints.first(where: { $0.owner == .fromHost && $0.channel == number }),
      let other = endpoints.first(where: { $0.owner == .fromController && $0.channel == own.other }),
      own.isCertain, other.isCertain
    else { return nil }
    return min(own.mtu, other.mtu)
  }

  /// A frame for any channel of an LE link. Vol 3, Part A, §2.1, Table 2.2.
  mutating func channel(_ channel: UInt16, _ direction: HCIDirection, _ report: inout CheckReport) {
    let isKnown: Bool =
      switch channel {
      case 0x0004...0x0006, 0x0020...0x003E, 0x0040...0x007F: true
      default: false
      }
    report.judge(
      .channelKnown, isKnown, by: direction.sender, seen: "channel \(code(channel, 4))",
      allowed: "0x0004 to 0x0006, 0x0020 to 0x003E, 0x0040 to 0x007F")
  }

  /// A frame of the connection: what has waited too long for its answer.
  mutating func timePasses(_ report: inout CheckReport) {
    for place in waiting.indices {
      for identifier in waiting[place].keys.sorted() {
        guard let request = waiting[place][identifier], let elapsed = elapsed(since: request, report),
          elapsed > request.limit
        else { continue }
        waiting[place][identifier]?.since = nil
        report.judge(
          .signalTimeout, false, by: place == 0 ? .peer : .host,
          seen: "no answer to \(Self.name(request.code)) for \(elapsed / 1_000_000_000) s",
          allowed: "\(request.limit / 1_000_000_000) s")
      }
    }
  }
  /// A longer time than an hour is a clock that was set.
  private func elapsed(since request: Request, _ report: CheckReport) -> Int64? {
    guard let since = request.since else { return nil }
    let (elapsed, hasOverflow) = report.time.subtractingReportingOverflow(since)
    return hasOverflow || !(0..<3_600_000_000_000).contains(elapsed) ? nil : elapsed
  }

  // MARK: Commands

  mutating func receive(
    _ direction: HCIDirection, _ payload: Span<UInt8>, isCentral: Bool?, _ report: inout CheckReport
  ) {
    let party = direction.sender, header = SignalHeader(payload, at: 0..<SignalHeader.count)
    let stated = Int(header?.length ?? 0), end = SignalHeader.count + stated
    let isWhole = payload.count >= end
    if let header { report.subject = .signal(header.code) }
    if isWhole {
      report.judge(
        .signalSingle, payload.count == end, by: party, seen: "\(payload.count - end) octets behind a command",
        allowed: "none")
    }
    let problem = isWhole ? Self.lengthProblem(payload[0], stated) : "\(end) octets"
    report.judge(
      .signalLength, problem == nil, by: party,
      seen: payload.count > 0
        ? "\(Self.name(SignalCode(rawValue: payload[0]))) with \(isWhole ? stated : payload.count) octets"
        : "an empty frame",
      allowed: problem ?? "")
    guard isWhole, let header else {
      if payload.count >= 2 { rejectable(direction, SignalCode(rawValue: payload[0]), payload[1]) }
      return lose()
    }
    let isKnown: Bool =
      switch header.code.rawValue {
      case 0x01, 0x06, 0x07, 0x12...0x1A: true
      default: false
      }
    report.judge(
      .signalCode, isKnown, by: party, seen: "code \(code(header.code.rawValue))",
      allowed: "0x01, 0x06, 0x07, 0x12 to 0x1A")
    report.judge(
      .signalIdentifier, header.identifier != 0, by: party, seen: "identifier 0x00", allowed: "0x01 to 0xFF")
    // The command alone: octets behind it belong to no field, and no list of channels ends with them.
    let command = payload.extracting(first: end)
    guard isKnown, problem == nil, let signal = try? AnySignal(command) else {
      return rejectable(direction, header.code, header.identifier)
    }
    switch signal {
    case .commandRejectResponse, .disconnectionResponse, .connectionParameterUpdateResponse,
      .leCreditBasedConnectionResponse, .creditBasedConnectionResponse, .creditBasedReconfigureResponse:
      answer(direction, header, signal, command, &report)
    case .flowControlCreditIndication(let signal): credit(direction, signal, &report)
    case .disconnectionRequest, .connectionParameterUpdateRequest, .leCreditBasedConnectionRequest,
      .creditBasedConnectionRequest, .creditBasedReconfigureRequest:
      request(direction, header, signal, command, isCentral: isCentral, &report)
    }
  }
  /// A command that breaks a rule is answered by Command Reject, unless it is an answer itself.
  private mutating func rejectable(_ direction: HCIDirection, _ code: SignalCode, _ identifier: UInt8) {
    waiting[Self.place(direction)][identifier] = Request(code: code)
  }
  private static func name(_ number: SignalCode) -> String { number.name ?? "code \(code(number.rawValue))" }
  /// The lengths that a code permits; nil: it has one of them.
  private static func lengthProblem(_ code: UInt8, _ count: Int) -> String? {
    let (isSound, allowed): (Bool, StaticString) =
      switch code {
      case 0x01: (count >= 2, "2 octets or more")
      case 0x06, 0x07, 0x16: (count == 4, "4 octets")
      case 0x12: (count == 8, "8 octets")
      case 0x13, 0x1A: (count == 2, "2 octets")
      case 0x14, 0x15: (count == 10, "10 octets")
      case 0x17: (count >= 10 && count <= 18 && count % 2 == 0, "8 octets and one to five channels")
      case 0x18: (count >= 8 && count <= 18 && count % 2 == 0, "8 octets and up to five channels")
      case 0x19: (count >= 6 && count <= 14 && count % 2 == 0, "4 octets and one to five channels")
      default: (true, "")
      }
    return isSound ? nil : "\(allowed)"
  }
  private static func place(_ direction: HCIDirection) -> Int { direction == .fromHost ? 0 : 1 }

  private mutating func request(
    _ direction: HCIDirection, _ header: SignalHeader, _ signal: AnySignal, _ command: Span<UInt8>, isCentral: Bool?,
    _ report: inout CheckReport
  ) {
    let party = direction.sender, octets = command.array
    // A request that was not answered in time may be sent again, as it was. Vol 3, Part A, §6.2.1.
    let known = waiting[Self.place(direction)][header.identifier]
    report.judge(
      .signalReuse, known == nil || known?.octets == octets, by: party,
      seen: "identifier \(code(header.identifier)) again", allowed: "another one, or the same request")
    if let known, known.octets != octets {
      // Which of them is answered is not known.
      isCertain = false
      waiting[Self.place(direction)][header.identifier] = Request(code: header.code)
      return
    }
    var request = Request(code: header.code, octets: octets, signal: signal)
    if isAnswered(signal, direction), header.identifier != 0 { request.since = report.time }
    waiting[Self.place(direction)][header.identifier] = request
    let isNew = answered[Self.place(direction)] != octets
    switch signal {
    case .connectionParameterUpdateRequest(let asked): update(asked, isCentral: isCentral, party, &report)
    case .leCreditBasedConnectionRequest(let asked):
      spsm(asked.spsm, party, &report)
      range(asked.sourceCID, party, &report)
      if isNew { unique([asked.sourceCID], direction, &report) }
      minimum(asked.mtu, asked.mps, 23, party, &report)
    case .creditBasedConnectionRequest(let asked):
      spsm(asked.spsm, party, &report)
      minimum(asked.mtu, asked.mps, 64, party, &report)
      firstCredits(asked.initialCredits, party, &report)
      let channels = asked.sourceCIDs.all(in: command)
      for channel in channels { range(channel, party, &report) }
      if isNew { unique(channels, direction, &report) }
    case .creditBasedReconfigureRequest(let asked):
      minimum(asked.mtu, asked.mps, 64, party, &report)
      reconfigures(asked, asked.destinationCIDs.all(in: command), direction, &report)
    case .commandRejectResponse, .disconnectionRequest, .disconnectionResponse, .connectionParameterUpdateResponse,
      .leCreditBasedConnectionResponse, .flowControlCreditIndication, .creditBasedConnectionResponse,
      .creditBasedReconfigureResponse:
      break
    }
  }
  /// A disconnection request whose channels do not match is discarded: Vol 3, Part A, §4.6.
  private func isAnswered(_ signal: AnySignal, _ direction: HCIDirection) -> Bool {
    guard case .disconnectionRequest(let asked) = signal else { return true }
    return endpoints.contains {
      $0.owner != direction && $0.channel == asked.destinationCID && $0.other == asked.sourceCID && $0.isCertain
    }
  }
  /// The numbers that a device gives to new channels.
  private func unique(_ channels: [ChannelID], _ owner: HCIDirection, _ report: inout CheckReport) {
    for (index, channel) in channels.enumerated() where channel.rawValue != 0 {
      let isOpen = endpoints.contains {
        $0.owner == owner && $0.channel == channel && $0.isCertain && !$0.isAssumed
      }
      report.judge(
        .channelUnique, !isOpen && !channels[..<index].contains(channel), by: owner.sender,
        seen: "channel \(code(channel.rawValue, 4)) again", allowed: "one that is not open")
    }
  }
  private func firstCredits(_ credits: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    report.judge(.channelFirstCredits, credits > 0, by: party, seen: "no credits", allowed: "1 to 65,535")
  }
  private func reconfigures(
    _ asked: CreditBasedReconfigureRequest, _ channels: [ChannelID], _ owner: HCIDirection,
    _ report: inout CheckReport
  ) {
    let party = owner.sender
    // Of the channels whose lengths are known, the greatest.
    var mtu = 0, mps = 0
    for channel in channels {
      let endpoint = endpoints.first { $0.owner == owner && $0.channel == channel }
      if endpoint != nil || isCertain {
        report.judge(
          .reconfiguredChannel, endpoint?.isEnhanced == true, by: party,
          seen: "channel \(code(channel.rawValue, 4))", allowed: "an open enhanced one")
      }
      guard let endpoint, endpoint.isEnhanced, endpoint.isCertain else { continue }
      mtu = max(mtu, endpoint.mtu)
      mps = max(mps, endpoint.mps)
    }
    guard mtu > 0 else { return }
    report.judge(
      .reconfiguredMTU, Int(asked.mtu) >= mtu, by: party, seen: "MTU \(asked.mtu)", allowed: "\(mtu) or more")
    report.judge(
      .reconfiguredMPS, channels.count == 1 || Int(asked.mps) >= mps, by: party,
      seen: "MPS \(asked.mps) for \(channels.count) channels", allowed: "\(mps) or more")
  }
  private func update(
    _ asked: ConnectionParameterUpdateRequest, isCentral: Bool?, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    if let isCentral {
      report.judge(
        .updateByPeripheral, !isCentral, by: party, seen: "a request by the Central", allowed: "LE_Connection_Update")
    }
    let least = asked.intervalMin.rawValue, most = asked.intervalMax.rawValue
    let latency = asked.latency, timeout = asked.timeout.rawValue
    let isSound =
      (6...3_200).contains(least) && (least...max(least, 3_200)).contains(most) && latency <= 499
      && (10...3_200).contains(timeout)
    report.judge(
      .updateParameters, isSound, by: party,
      seen: "intervals \(least) to \(most), latency \(latency), timeout \(timeout)",
      allowed: "6 to 3,200 in order, at most 499, 10 to 3,200")
    // Units of 10 ms and 1.25 ms.
    report.judge(
      .updateTimeout, UInt32(timeout) * 4 > (1 + UInt32(latency)) * UInt32(most), by: party,
      seen: "latency \(latency) with interval \(most) and timeout \(timeout)",
      allowed: "a latency below (timeout / (interval × 2)) − 1")
  }
  private func spsm(_ spsm: SPSM, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    report.judge(
      .channelPSM, (1...0xFF).contains(spsm.rawValue), by: party, seen: "SPSM \(code(spsm.rawValue, 4))",
      allowed: "0x0001 to 0x00FF")
  }
  private func range(_ channel: ChannelID, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    report.judge(
      .channelRange, (0x0040...0x007F).contains(channel.rawValue), by: party,
      seen: "channel \(code(channel.rawValue, 4))", allowed: "0x0040 to 0x007F")
  }
  private func minimum(
    _ mtu: UInt16, _ mps: UInt16, _ least: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    report.judge(
      .channelMinimum, mtu >= least && mps >= least && mps <= 65_533, by: party, seen: "MTU \(mtu), MPS \(mps)",
      allowed: "\(least) or more, MPS at most 65,533")
  }

  private mutating func answer(
    _ direction: HCIDirection, _ header: SignalHeader, _ signal: AnySignal, _ command: Span<UInt8>,
    _ report: inout CheckReport
  ) {
    let other = Self.place(direction.opposite), party = direction.sender
    let asked = waiting[other][header.identifier]
    let isExpected = asked.map { header.code == 0x01 || header.code == $0.response }
    if asked != nil || isCertain {
      report.judge(
        .signalResponse, isExpected ?? false, by: party,
        seen: "\(Self.name(header.code)), identifier \(code(header.identifier))",
        allowed: asked.map { Self.name($0.response) } ?? "the identifier of a request")
    }
    guard let asked, isExpected == true else { return }
    if let elapsed = elapsed(since: asked, report) {
      report.judge(
        .signalTimeout, elapsed <= asked.limit, by: party,
        seen: "\(Self.name(header.code)) after \(elapsed / 1_000_000_000) s",
        allowed: "\(asked.limit / 1_000_000_000) s")
    }
    if case .creditBasedConnectionResponse(let answer) = signal, answer.result.isPending {
      // Another one follows, for the same request.
      waiting[other][header.identifier]?.since = report.time
      waiting[other][header.identifier]?.limit = Request.furtherLimit
      return
    }
    // RTX has 1 s or more.
    let isLate = asked.since.map { report.time &- $0 > 1_000_000_000 } ?? true
    waiting[other][header.identifier] = nil
    answered[other] = asked.octets
    switch signal {
    case .disconnectionResponse:
      if case .disconnectionRequest(let asked)? = asked.signal { close(asked, direction) }
    case .leCreditBasedConnectionResponse(let answer):
      guard case .leCreditBasedConnectionRequest(let asked)? = asked.signal, answer.result == .success else { return }
      range(answer.destinationCID, party, &report)
      unique([answer.destinationCID], direction, &report)
      minimum(answer.mtu, answer.mps, 23, party, &report)
      open(
        direction, answer.destinationCID, asked.sourceCID, isEnhanced: false, isLate: isLate,
        theirs: Terms(mtu: asked.mtu, mps: asked.mps, credits: asked.initialCredits),
        ours: Terms(mtu: answer.mtu, mps: answer.mps, credits: answer.initialCredits))
    case .creditBasedConnectionResponse(let answer):
      guard case .creditBasedConnectionRequest(let request)? = asked.signal else { return }
      opened(direction, answer, command, request, asked.octets.span, isLate: isLate, &report)
    case .creditBasedReconfigureResponse(let answer):
      guard case .creditBasedReconfigureRequest(let request)? = asked.signal, answer.result == .success else { return }
      reconfigured(direction.opposite, request, asked.octets.span)
    case .commandRejectResponse, .disconnectionRequest, .connectionParameterUpdateRequest,
      .connectionParameterUpdateResponse, .leCreditBasedConnectionRequest, .flowControlCreditIndication,
      .creditBasedConnectionRequest, .creditBasedReconfigureRequest:
      break
    }
  }
  private mutating func open(
    _ direction: HCIDirection, _ channel: ChannelID, _ other: ChannelID, isEnhanced: Bool, isLate: Bool, theirs: Terms,
    ours: Terms
  ) {
    guard endpoints.count + 2 <= Self.mostEndpoints else {
      isCertain = false
      return
    }
    func endpoint(_ owner: HCIDirection, _ channel: ChannelID, _ other: ChannelID, _ terms: Terms) -> Endpoint {
      Endpoint(
        owner: owner, channel: channel, other: other, mtu: Int(terms.mtu), mps: Int(terms.mps),
        credits: Int(terms.credits), isEnhanced: isEnhanced)
    }
    // One of the same number, which its device believes closed, has ended in a gap.
    endpoints.removeAll { $0.owner == direction ? $0.channel == channel : $0.channel == other }
    let least = isEnhanced ? 64 : 23
    let isSound =
      (0x0040...0x007F).contains(channel.rawValue) && ours.mtu >= least && (UInt16(least)...65_533).contains(ours.mps)
    endpoints.append(endpoint(direction, channel, other, ours))
    var asker = endpoint(direction.opposite, other, channel, theirs)
    asker.isAssumed = isLate || !isSound
    endpoints.append(asker)
  }
  /// A channel that was refused has the identifier 0.
  private mutating func opened(
    _ direction: HCIDirection, _ answer: CreditBasedConnectionResponse, _ command: Span<UInt8>,
    _ asked: CreditBasedConnectionRequest, _ request: Span<UInt8>, isLate: Bool, _ report: inout CheckReport
  ) {
    let channels = answer.destinationCIDs.all(in: command), others = asked.sourceCIDs.all(in: request)
    let party = direction.sender
    guard channels.contains(where: { $0.rawValue != 0 }) || answer.result == .success else { return }
    report.judge(
      .channelCount, channels.count == others.count, by: party, seen: "\(channels.count) channels",
      allowed: "\(others.count)")
    minimum(answer.mtu, answer.mps, 64, party, &report)
    firstCredits(answer.initialCredits, party, &report)
    unique(channels, direction, &report)
    for (channel, other) in zip(channels, others) where channel.rawValue != 0 {
      range(channel, party, &report)
      open(
        direction, channel, other, isEnhanced: true, isLate: isLate,
        theirs: Terms(mtu: asked.mtu, mps: asked.mps, credits: asked.initialCredits),
        ours: Terms(mtu: answer.mtu, mps: answer.mps, credits: answer.initialCredits))
    }
  }
  private mutating func reconfigured(
    _ owner: HCIDirection, _ asked: CreditBasedReconfigureRequest, _ request: Span<UInt8>
  ) {
    for channel in asked.destinationCIDs.all(in: request) {
      for index in endpoints.indices where endpoints[index].owner == owner && endpoints[index].channel == channel {
        endpoints[index].mtu = Int(asked.mtu)
        endpoints[index].mps = Int(asked.mps)
      }
    }
  }
  /// The request's destination is an endpoint of the device that answers.
  private mutating func close(_ asked: DisconnectionRequest, _ direction: HCIDirection) {
    endpoints.removeAll {
      $0.owner == direction ? $0.channel == asked.destinationCID : $0.channel == asked.sourceCID
    }
  }
  private mutating func credit(
    _ direction: HCIDirection, _ signal: FlowControlCreditIndication, _ report: inout CheckReport
  ) {
    let more = Int(signal.credits)
    let place = endpoints.firstIndex { $0.owner == direction && $0.channel == signal.cid }
    // Frames in a gap have used some.
    let credits = place.map { endpoints[$0].isCertain ? endpoints[$0].credits : 0 } ?? 0
    report.judge(
      .channelCreditLimit, more > 0 && credits + more <= 65_535, by: direction.sender,
      seen: "\(more) credits beside \(credits)", allowed: "1 to \(65_535 - credits)")
    guard let place else { return }
    endpoints[place].credits = min(65_535, credits + more)
    endpoints[place].isAssumed = false
  }

  // MARK: Channels

  /// A K-frame. Vol 3, Part A, §3.4.
  mutating func data(
    _ channel: UInt16, _ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport
  ) {
    let party = direction.sender
    let place = endpoints.firstIndex { $0.owner != direction && $0.channel.rawValue == channel }
    if place != nil || isCertain {
      report.judge(
        .channelOpen, place != nil, by: party, seen: "channel \(code(channel, 4))", allowed: "one that is open")
    }
    guard let place else { return }
    for index in endpoints.indices
    where endpoints[index].owner == direction && endpoints[index].channel == endpoints[place].other {
      endpoints[index].isAssumed = false
    }
    var endpoint = endpoints[place]
    defer { endpoints[place] = endpoint }
    if endpoint.isCertain {
      report.judge(
        .channelCredits, endpoint.credits > 0, by: party, seen: "a frame on channel \(code(channel, 4))",
        allowed: "none without a credit")
    }
    endpoint.credits = max(0, endpoint.credits - 1)
    guard endpoint.isCertain else { return }
    report.judge(
      .segmentSize, payload.count <= endpoint.mps, by: party, seen: "\(payload.count) octets",
      allowed: "at most \(endpoint.mps)")
    unit(payload, &endpoint, party, &report)
  }
  /// The first frame of an SDU begins with its length.
  private func unit(
    _ payload: Span<UInt8>, _ endpoint: inout Endpoint, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let isFirst = endpoint.remaining == 0
    let length = isFirst ? (payload.count >= 2 ? Int(payload.little16(0)) : nil) : endpoint.remaining
    let count = isFirst ? max(0, payload.count - 2) : payload.count
    let isSound = length.map { count <= $0 && (!isFirst || $0 <= endpoint.mtu) } ?? false
    report.judge(
      .unitSize, isSound, by: party,
      seen: length.map { "\(count) octets of an SDU of \($0)" } ?? "\(payload.count) octets without a length",
      allowed: "an SDU of at most \(endpoint.mtu)")
    endpoint.remaining = isSound ? (length ?? 0) - count : 0
  }
}

extension WireList<ChannelID> {
  fileprivate func all(in frame: Span<UInt8>) -> [ChannelID] {
    var cursor = cursor, channels: [ChannelID] = []
    while let channel = cursor.next(in: frame) { channels.append(channel) }
    return channels
  }
}
