import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

// Our host as a server: the application's values and answers, taken from the recorded responses.
extension ReplayRun {
  /// Feeds a request or a command of the peer.
  mutating func playRequest(_ current: ReplayStep, _ link: Int) {
    let answer = current.partner.map { script.steps[$0].payload }
    // A service whose UUID the recorded server compares in either form.
    if current.payload.opcode == FindByTypeValueRequest.opcode, answer?.opcode == FindByTypeValueResponse.opcode,
      let short = UUIDForms.shortened(current.payload)
    {
      result.use(.uuidForm, at: number)
      return feed(short, on: .attribute, of: link)
    }
    feed()
    guard current.payload.opcode.kind == .request else { return }
    if let answer, let ours = front(.server, link), isDemand(ours), !isDemand(answer), encryptBefore(link) {
      // The link was encrypted before the trace.
      take(.server, link)
      return feed()
    }
    // The recorded host leaves the request without an answer, and answers later ones.
    guard answer == nil else { return }
    let later = script.next(after: step, on: link) {
      $0.direction == .fromController && $0.stream == .client && $0.partner != nil
    }
    if later != nil, let ours = take(.server, link) { diverge(nil, ours, .server, link) }
  }
  /// The recorded server answers Request Not Supported to what a server need not support. Vol 3, Part F, §3.4.1.1.
  func refusesOptional(_ request: ReplayStep) -> Bool {
    guard let partner = request.partner, Self.optional.contains(request.payload.opcode) else { return false }
    let answer = script.steps[partner].payload
    return answer.count == 5 && answer.opcode == ErrorResponse.opcode && answer[1] == request.payload[0]
      && answer[4] == ATTError.requestNotSupported.rawValue
  }
  private static let optional: Set<ATTOpcode> = [
    ExchangeMTURequest.opcode, ReadBlobRequest.opcode, ReadMultipleRequest.opcode, ReadMultipleVariableRequest.opcode,
    WriteRequest.opcode, PrepareWriteRequest.opcode, ExecuteWriteRequest.opcode,
  ]
  /// The same error, which need not be about an attribute: one names the request's handle, the other none. Vol 3, Part F,
  /// §3.4.1.1.
  func differInErrorHandle(_ recorded: [UInt8], _ ours: [UInt8]) -> Bool {
    guard recorded.count == 5, ours.count == 5, recorded.opcode == ErrorResponse.opcode, recorded[..<2] == ours[..<2],
      recorded[4] == ours[4],
      [ATTError.unlikelyError, .insufficientResources].contains(ATTError(rawValue: recorded[4])),
      let partner = script.steps[step].partner
    else { return false }
    let handle = script.steps[partner].payload.little16(1)
    return Set([recorded.little16(2), ours.little16(2)]) == [0, handle]
  }
  /// Attribute Not Long, which a server may answer to Read Blob for a value that one Read Response can hold: Vol 3,
  /// Part F, §3.4.4.5.
  func isNotLong(_ recorded: [UInt8], _ ours: [UInt8], _ link: Int) -> Bool {
    guard recorded.count == 5, recorded.opcode == ErrorResponse.opcode,
      recorded[1] == ReadBlobRequest.opcode.rawValue, recorded[4] == ATTError.attributeNotLong.rawValue,
      let partner = script.steps[step].partner, let id = live[link]?.id, let mtu = core.mtu(of: id)
    else { return false }
    let request = script.steps[partner].payload
    guard recorded[2...3] == request[1...2] else { return false }
    if let value = core.database.value(AttributeHandle(rawValue: request.little16(1))) { return value.count < mtu }
    if ours.opcode == ReadBlobResponse.opcode { return Int(request.little16(3)) + ours.count - 1 <= mtu - 1 }
    return ours.opcode == ErrorResponse.opcode && ours.count == 5 && ours[4] == ATTError.invalidOffset.rawValue
  }
  /// Sets the values that the recorded response to a request contains, as the application had set them by then.
  mutating func prepareValues(for current: ReplayStep, _ link: Int) {
    guard let partner = current.partner, !current.payload.isEmpty else { return }
    let opcode = current.payload.opcode
    if current.payload.count >= 3, [WriteRequest.opcode, PrepareWriteRequest.opcode].contains(opcode) {
      live[link]?.configured.insert(current.payload.little16(1))
    }
    removeBond(ifDeniedBy: script.steps[partner].payload, link)
    if opcode == ReadMultipleRequest.opcode { prepareValues(current.payload, script.steps[partner].payload) }
    for (handle, part) in RebuiltDatabase.values(current.payload, script.steps[partner].payload) {
      let attribute = AttributeHandle(rawValue: handle)
      if isConfiguration(handle) { restore(part, at: handle, link) }
      guard database.value(attribute) != nil else { continue }
      var value = part
      if opcode == ReadBlobRequest.opcode {
        // A part in the middle: the octets before it are known from the parts before.
        let offset = Int(current.payload.little16(3)), before = core.database.value(attribute) ?? []
        guard offset <= before.count, offset + part.count <= AttributeValue.longest else { continue }
        value = Array(before.prefix(offset)) + part
      }
      if opcode == ReadRequest.opcode || opcode == ReadBlobRequest.opcode {
        value += rest(of: handle, after: value.count, link)
      }
      set(attribute, to: value, isCut: isCut(opcode, part, link))
    }
    pump()
  }
  /// A list response that ends after one of the entries of ours. Vol 3, Part F, §3.4.3.2, §3.4.3.4, §3.4.4.2,
  /// §3.4.4.10.
  func isBeginning(_ recorded: [UInt8], of ours: [UInt8]) -> Bool {
    guard recorded.count < ours.count, recorded.count > 2, ours.starts(with: recorded) else { return false }
    switch recorded.opcode {
    case FindInformationResponse.opcode: return (recorded.count - 2) % (recorded[1] == 1 ? 4 : 18) == 0
    case FindByTypeValueResponse.opcode: return (recorded.count - 1) % 4 == 0
    case ReadByTypeResponse.opcode, ReadByGroupTypeResponse.opcode:
      return recorded[1] > 0 && (recorded.count - 2) % Int(recorded[1]) == 0
    default: return false
    }
  }
  /// An indication of Service Changed. Vol 3, Part G, §7.1.
  func isServiceChange(_ pdu: [UInt8]) -> Bool {
    pdu.count == 7 && pdu.opcode == HandleValueIndication.opcode
      && database.serviceChanged?.rawValue == pdu.little16(1)
  }
  /// Both indicate Service Changed, and the recorded range has all of ours.
  func coversServiceChange(_ recorded: [UInt8], _ ours: [UInt8]) -> Bool {
    isServiceChange(recorded) && isServiceChange(ours) && ServiceChanges.covers(recorded, ours)
  }
  private func isConfiguration(_ handle: UInt16) -> Bool {
    let place = configurations.partitioning { $0 >= handle }
    return place < configurations.count && configurations[place] == handle
  }
  /// A configuration that the client wrote before the trace, on this link or with the bond. Vol 3, Part G, §3.3.3.3.
  private mutating func restore(_ value: [UInt8], at handle: UInt16, _ link: Int) {
    guard value.count == 2, value != [0, 0], let peer = live[link]?.peer, let id = live[link]?.id,
      script.links[link].begin == nil || guessed.contains(peer) && core.security(of: id)?.key != nil,
      live[link]?.configured.insert(handle).inserted == true
    else { return }
    result.use(.subscriptionBefore, at: number)
    configure(handle, as: value, link)
  }
  /// A write of the client that is not in the trace.
  private mutating func configure(_ handle: UInt16, as value: [UInt8], _ link: Int) {
    let before = live[link]?.sent.count ?? 0
    feed([WriteRequest.opcode.rawValue] + handle.littleOctets + value, on: .attribute, of: link)
    // Neither is its response.
    if let count = live[link]?.sent.count, count > before { live[link]?.sent.removeLast() }
  }

  /// The response had no room for more of the value. Vol 3, Part F, §3.4.4.2, §3.4.4.4, §3.4.4.6.
  private func isCut(_ opcode: ATTOpcode, _ part: [UInt8], _ link: Int) -> Bool {
    let mtu = live[link].flatMap { core.mtu(of: $0.id) } ?? 23
    return part.count
      >= (opcode == ReadByTypeRequest.opcode
        ? min(mtu - 4, 253) : opcode == ReadMultipleVariableRequest.opcode ? mtu - 3 : mtu - 1)
  }
  private mutating func set(_ attribute: AttributeHandle, to value: [UInt8], isCut: Bool) {
    let before = core.database.value(attribute) ?? []
    if before == value || isCut && before.starts(with: value) { return }
    if !before.isEmpty { result.use(.applicationValue, at: number) }
    _ = core.setValue(attribute, to: Array(value.prefix(AttributeValue.longest)))
  }
  /// The values of Read Multiple have no lengths: those that are known are skipped, and the first other one is the
  /// rest. Vol 3, Part F, §3.4.4.8.
  private mutating func prepareValues(_ request: [UInt8], _ response: [UInt8]) {
    guard response.opcode == ReadMultipleResponse.opcode else { return }
    var rest = response.dropFirst()
    for place in stride(from: 1, to: request.count - 1, by: 2) {
      let handle = AttributeHandle(rawValue: request.little16(place))
      guard let value = core.database.value(handle) else { return }
      if !value.isEmpty, rest.starts(with: value) {
        rest = rest.dropFirst(value.count)
      } else {
        return set(handle, to: Array(rest), isCut: false)
      }
    }
  }
  /// 512 octets in parts of 22, and some empty ones.
  private static var mostParts: Int { 32 }
  /// What the peer reads of the same value next.
  private func rest(of handle: UInt16, after count: Int, _ link: Int) -> [UInt8] {
    var rest: [UInt8] = [], at = step
    var left = Self.mostParts
    while rest.count < AttributeValue.longest, left > 0,
      let next = script.next(
        after: at, on: link,
        where: {
          $0.direction == .fromController && $0.stream == .client && $0.payload.opcode.kind == .request
        })
    {
      let request = script.steps[next].payload
      guard request.count == 5, request.opcode == ReadBlobRequest.opcode, request.little16(1) == handle,
        Int(request.little16(3)) == count + rest.count, let partner = script.steps[next].partner,
        script.steps[partner].payload.opcode == ReadBlobResponse.opcode
      else { break }
      rest += script.steps[partner].payload.dropFirst()
      left -= 1
      at = next
    }
    return rest
  }

  // MARK: Answers of the application

  /// The recorded response to the request that is being fed.
  private var recordedAnswer: [UInt8]? {
    guard step < script.steps.count, let partner = script.steps[step].partner else { return nil }
    return script.steps[partner].payload
  }
  /// The error in it that is the application's.
  private var recordedError: ATTError? {
    guard let answer = recordedAnswer, answer.count == 5, answer.opcode == ErrorResponse.opcode else { return nil }
    return ATTError(rawValue: answer[4])
  }
  mutating func answerRead(_ id: ServerRequestID, _ link: LinkID, _ offset: Int) {
    if let error = recordedError {
      core.refuse(id, error, now: now)
    } else {
      let request = script.steps[step].payload
      let values = recordedAnswer.map { RebuiltDatabase.values(request, $0) } ?? []
      core.answerRead(id, values.first?.value ?? [], now: now)
    }
  }
  mutating func answerWrite(_ id: ServerRequestID, _ link: LinkID, _ handle: AttributeHandle) {
    if let error = recordedError { core.refuse(id, error, now: now) } else { core.answerWrite(id, now: now) }
  }

  // MARK: Values

  mutating func playValue(_ recorded: [UInt8], _ link: Int) {
    guard let id = live[link]?.id else { return }
    let isChange = isServiceChange(recorded)
    // Service Changed, which our server has indicated by itself: here, or where the recorded one does it later.
    while let ours = front(.values, link), isServiceChange(ours) {
      let later = script.next(after: step, on: link) {
        $0.direction == .fromHost && $0.stream == .values && coversServiceChange($0.payload, ours)
      }
      if isChange, coversServiceChange(recorded, ours) || later == nil {
        compare(recorded, .values, link)
        // One indication may stand for several changes, which ours indicates one after the other.
        if recorded != ours { live[link]?.changes.addTheirs(recorded) }
        return
      }
      take(.values, link)
      live[link]?.changes.addOurs(ours)
      confirm(on: link)
    }
    if isChange {
      if live[link]?.changes.takeOurs(coveredBy: recorded) == true {
        result.links[link].compared[.values, default: 0] += 1
        result.use(.serviceChangedTime, at: number)
        countEqual(.values, link)
        // Ours has its confirmation.
        let confirmation = script.next(after: step, on: link) {
          $0.direction == .fromController && $0.stream == .confirmations
        }
        if let confirmation { skipped.insert(confirmation) }
        return
      }
    }
    if !send(recorded, id) {
      // The client's subscription is older than the trace.
      subscribe(recorded, link)
      _ = send(recorded, id)
    }
    pump()
    compare(recorded, .values, link)
    if isChange { live[link]?.changes.addTheirs(recorded) }
  }
  /// False if the client has not subscribed.
  private mutating func send(_ pdu: [UInt8], _ link: LinkID) -> Bool {
    guard pdu.count >= 3 else { return true }
    let handle = AttributeHandle(rawValue: pdu.little16(1)), value = Array(pdu[3...])
    switch pdu.opcode {
    case HandleValueNotification.opcode: return core.notify(value.span, of: handle, on: link) != nil
    case HandleValueIndication.opcode: return core.indicate(value.span, of: handle, on: link) != nil
    default:
      let values = RebuiltDatabase.tuples(pdu).map { (handle: AttributeHandle(rawValue: $0.handle), value: $0.value) }
      _ = core.notify(values, on: link)
      return true
    }
  }
  private mutating func subscribe(_ pdu: [UInt8], _ link: Int) {
    // The next configuration behind the value is its own.
    let value = pdu.little16(1), place = configurations.partitioning { $0 > value }
    guard place < configurations.count else { return }
    result.use(.subscriptionBefore, at: number)
    configure(configurations[place], as: [pdu.opcode == HandleValueIndication.opcode ? 2 : 1, 0], link)
  }
}

extension [UInt16] {
  /// The first place from which on `body` is true, in an array that it parts.
  fileprivate func partitioning(_ body: (UInt16) -> Bool) -> Int {
    var low = 0, high = count
    while low < high {
      let middle = (low + high) / 2
      if body(self[middle]) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}
