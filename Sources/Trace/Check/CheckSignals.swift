import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # CheckSignals
/// **Overview**: the LE signaling channel of a connection, and the credit-based channels that it opens, for
/// ``Checker``. Vol 3, Part A, §4 and §10.1.
///
/// **Function**: a channel is two endpoints, one at each device. A device gives the other credits for its own endpoint,
/// and states there what it can receive. L2CAP declares the signals that its host has; those that open, change and
/// close such channels are read here by their codes and offsets, after `lengthProblem` has judged their lengths.
struct CheckSignals {
  /// The receiving end of a channel.
  private struct Endpoint {
    /// The device that has it.
    var owner: HCIDirection
    var channel: UInt16
    /// The other end's identifier.
    var other: UInt16
    var mtu: Int, mps: Int
    /// Frames that the other device may send now.
    var credits: Int
    /// Octets of an SDU that are still to come; 0 between two.
    var remaining = 0
    /// Every frame of it is in the trace.
    var isCertain = true
  }
  /// Endpoints that are followed.
  private static var mostEndpoints: Int { 128 }

  var isFromStart = false {
    didSet { isCertain = isFromStart }
  }
  /// Every command of the connection is in the trace.
  private var isCertain = false
  /// Requests without an answer, by their identifier: the host's and the peer's.
  private var waiting: [[UInt8: [UInt8]]] = [[:], [:]]
  private var endpoints: [Endpoint] = []

  mutating func lose() {
    isCertain = false
    for index in endpoints.indices {
      endpoints[index].isCertain = false
      endpoints[index].remaining = 0
    }
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

  // MARK: Commands

  mutating func receive(
    _ direction: HCIDirection, _ payload: Span<UInt8>, isCentral: Bool?, _ report: inout CheckReport
  ) {
    let party = direction.sender
    let stated = payload.count >= SignalHeader.count ? Int(payload.little16(2)) : 0
    let isWhole = payload.count >= SignalHeader.count + stated
    if isWhole {
      report.judge(
        .signalSingle, payload.count == SignalHeader.count + stated, by: party,
        seen: "\(payload.count - SignalHeader.count - stated) octets behind a command", allowed: "none")
    }
    let problem = isWhole ? Self.lengthProblem(payload[0], stated) : "\(SignalHeader.count + stated) octets"
    report.judge(
      .signalLength, problem == nil, by: party,
      seen: payload.count > 0
        ? "\(Self.name(payload[0])) with \(isWhole ? stated : payload.count) octets" : "an empty frame",
      allowed: problem ?? "")
    guard isWhole else {
      if payload.count >= 2 { rejectable(direction, payload) }
      return lose()
    }
    let isKnown: Bool =
      switch payload[0] {
      case 0x01, 0x06, 0x07, 0x12...0x1A: true
      default: false
      }
    report.judge(
      .signalCode, isKnown, by: party, seen: "code \(code(payload[0]))", allowed: "0x01, 0x06, 0x07, 0x12 to 0x1A")
    report.judge(.signalIdentifier, payload[1] != 0, by: party, seen: "identifier 0x00", allowed: "0x01 to 0xFF")
    guard isKnown, problem == nil else { return rejectable(direction, payload) }
    // The command alone: octets behind it belong to no field, and no list of channels ends with them.
    let command = payload.extracting(first: SignalHeader.count + stated)
    switch command[0] {
    case 0x01, 0x07, 0x13, 0x15, 0x18, 0x1A: answer(direction, command, &report)
    case 0x16: credit(direction, command, &report)
    default: request(direction, command, isCentral: isCentral, &report)
    }
  }
  /// A command that breaks a rule is answered by Command Reject, unless it is an answer itself.
  private mutating func rejectable(_ direction: HCIDirection, _ payload: Span<UInt8>) {
    waiting[Self.place(direction)][payload[1]] = [payload[0]]
  }
  private static func name(_ number: UInt8) -> String {
    SignalCode(rawValue: number).name ?? "code \(code(number))"
  }
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
    _ direction: HCIDirection, _ payload: Span<UInt8>, isCentral: Bool?, _ report: inout CheckReport
  ) {
    let party = direction.sender, octets = payload.array
    // A request that was not answered in time may be sent again, as it was. Vol 3, Part A, §6.2.1.
    let known = waiting[Self.place(direction)][payload[1]]
    report.judge(
      .signalReuse, known == nil || known == octets, by: party, seen: "identifier \(code(payload[1])) again",
      allowed: "another one, or the same request")
    waiting[Self.place(direction)][payload[1]] = octets
    switch payload[0] {
    case 0x12: update(payload, isCentral: isCentral, party, &report)
    case 0x14:
      spsm(payload, party, &report)
      range(payload.little16(6), party, &report)
      minimum(payload.little16(8), payload.little16(10), 23, party, &report)
    case 0x17:
      spsm(payload, party, &report)
      minimum(payload.little16(6), payload.little16(8), 64, party, &report)
      var at = 12
      while at + 1 < payload.count {
        range(payload.little16(at), party, &report)
        at += 2
      }
    case 0x19: minimum(payload.little16(4), payload.little16(6), 64, party, &report)
    default: break
    }
  }
  private func update(
    _ payload: Span<UInt8>, isCentral: Bool?, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    if let isCentral {
      report.judge(
        .updateByPeripheral, !isCentral, by: party, seen: "a request by the Central", allowed: "LE_Connection_Update")
    }
    guard let asked = try? WireDecoder.decode(ConnectionParameterUpdateRequest.self, payload, from: SignalHeader.count)
    else { return }
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
  private func spsm(_ payload: Span<UInt8>, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    let number = payload.little16(4)
    report.judge(
      .channelPSM, (1...0xFF).contains(number), by: party, seen: "SPSM \(code(number, 4))", allowed: "0x0001 to 0x00FF")
  }
  private func range(_ channel: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    report.judge(
      .channelRange, (0x0040...0x007F).contains(channel), by: party, seen: "channel \(code(channel, 4))",
      allowed: "0x0040 to 0x007F")
  }
  private func minimum(
    _ mtu: UInt16, _ mps: UInt16, _ least: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    report.judge(
      .channelMinimum, mtu >= least && mps >= least && mps <= 65_533, by: party, seen: "MTU \(mtu), MPS \(mps)",
      allowed: "\(least) or more, MPS at most 65,533")
  }

  private mutating func answer(_ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport) {
    let other = Self.place(direction.opposite), party = direction.sender
    let asked = waiting[other][payload[1]]
    if asked != nil || isCertain {
      report.judge(
        .signalResponse, asked.map { payload[0] == 0x01 || payload[0] == $0[0] &+ 1 } ?? false, by: party,
        seen: "\(Self.name(payload[0])), identifier \(code(payload[1]))",
        allowed: asked.map { Self.name($0[0] &+ 1) } ?? "the identifier of a request")
    }
    guard let asked, payload[0] == 0x01 || payload[0] == asked[0] &+ 1 else { return }
    waiting[other][payload[1]] = nil
    // Of a request that broke a rule only the code is kept.
    guard asked.count > SignalHeader.count else { return }
    switch payload[0] {
    case 0x07: close(asked.span.little16(4), asked.span.little16(6), direction)
    case 0x15 where payload.little16(12) == 0:
      range(payload.little16(4), party, &report)
      minimum(payload.little16(6), payload.little16(8), 23, party, &report)
      open(
        direction, payload.little16(4), asked.span.little16(6), theirs: (asked, 8), ours: (payload.array, 6))
    case 0x18: opened(direction, payload, asked, &report)
    case 0x1A where payload.little16(4) == 0: reconfigured(direction.opposite, asked)
    default: break
    }
  }
  /// `ours` and `theirs` are where MTU, MPS and initial credits are.
  private mutating func open(
    _ direction: HCIDirection, _ channel: UInt16, _ other: UInt16, theirs: ([UInt8], Int), ours: ([UInt8], Int)
  ) {
    guard endpoints.count + 2 <= Self.mostEndpoints else {
      isCertain = false
      return
    }
    func endpoint(_ owner: HCIDirection, _ channel: UInt16, _ other: UInt16, _ from: ([UInt8], Int)) -> Endpoint {
      Endpoint(
        owner: owner, channel: channel, other: other, mtu: Int(from.0.span.little16(from.1)),
        mps: Int(from.0.span.little16(from.1 + 2)), credits: Int(from.0.span.little16(from.1 + 4)))
    }
    endpoints.append(endpoint(direction, channel, other, ours))
    endpoints.append(endpoint(direction.opposite, other, channel, theirs))
  }
  /// L2CAP_CREDIT_BASED_CONNECTION_RSP: a channel that was refused has the identifier 0.
  private mutating func opened(
    _ direction: HCIDirection, _ payload: Span<UInt8>, _ asked: [UInt8], _ report: inout CheckReport
  ) {
    var at = 12
    while at + 1 < payload.count, at + 1 < asked.count {
      let channel = payload.little16(at)
      if channel != 0 {
        range(channel, direction.sender, &report)
        minimum(payload.little16(4), payload.little16(6), 64, direction.sender, &report)
        open(direction, channel, asked.span.little16(at), theirs: (asked, 6), ours: (payload.array, 4))
      }
      at += 2
    }
  }
  private mutating func reconfigured(_ owner: HCIDirection, _ asked: [UInt8]) {
    var at = 8
    while at + 1 < asked.count {
      let channel = asked.span.little16(at)
      for index in endpoints.indices where endpoints[index].owner == owner && endpoints[index].channel == channel {
        endpoints[index].mtu = Int(asked.span.little16(4))
        endpoints[index].mps = Int(asked.span.little16(6))
      }
      at += 2
    }
  }
  /// The request's destination is an endpoint of the device that answers.
  private mutating func close(_ destination: UInt16, _ source: UInt16, _ direction: HCIDirection) {
    endpoints.removeAll {
      ($0.owner == direction && $0.channel == destination) || ($0.owner != direction && $0.channel == source)
    }
  }
  private mutating func credit(_ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport) {
    let channel = payload.little16(4), more = Int(payload.little16(6))
    let place = endpoints.firstIndex { $0.owner == direction && $0.channel == channel }
    let credits = place.map { endpoints[$0].credits } ?? 0
    report.judge(
      .channelCreditLimit, more > 0 && credits + more <= 65_535, by: direction.sender,
      seen: "\(more) credits beside \(credits)", allowed: "1 to \(65_535 - credits)")
    if let place { endpoints[place].credits = min(65_535, credits + more) }
  }

  // MARK: Channels

  /// A K-frame. Vol 3, Part A, §3.4.
  mutating func data(
    _ channel: UInt16, _ direction: HCIDirection, _ payload: Span<UInt8>, _ report: inout CheckReport
  ) {
    let party = direction.sender
    let place = endpoints.firstIndex { $0.owner != direction && $0.channel == channel }
    if place != nil || isCertain {
      report.judge(
        .channelOpen, place != nil, by: party, seen: "channel \(code(channel, 4))", allowed: "one that is open")
    }
    guard let place else { return }
    var endpoint = endpoints[place]
    defer { endpoints[place] = endpoint }
    if endpoint.isCertain {
      report.judge(
        .channelCredits, endpoint.credits > 0, by: party, seen: "a frame on channel \(code(channel, 4))",
        allowed: "none without a credit")
    }
    endpoint.credits = max(0, endpoint.credits - 1)
    report.judge(
      .segmentSize, payload.count <= endpoint.mps, by: party, seen: "\(payload.count) octets",
      allowed: "at most \(endpoint.mps)")
    guard endpoint.isCertain else { return }
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
