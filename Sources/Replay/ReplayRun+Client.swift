import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

// Our host as a client: the application's operations, inferred from the recorded requests.
extension ReplayRun {
  static func isDiscovery(_ opcode: ATTOpcode) -> Bool {
    switch opcode {
    case FindInformationRequest.opcode, FindByTypeValueRequest.opcode, ReadByTypeRequest.opcode,
      ReadByGroupTypeRequest.opcode:
      true
    default: false
    }
  }
  private static var mostQuestions: Int { 256 }

  mutating func playClient(_ pdu: [UInt8], _ link: Int) {
    guard let id = live[link]?.id, !pdu.isEmpty else { return }
    let recorded = UUIDForms.shortened(pdu) ?? pdu, opcode = recorded.opcode
    if recorded != pdu { result.use(.uuidForm, at: number) }
    if opcode == WriteCommand.opcode || opcode == SignedWriteCommand.opcode {
      // A question that waits for an answer holds commands back.
      answerUnrecordedRequests(link)
      writeCommand(recorded, link, id)
      return compare(recorded, .client, link)
    }
    guard opcode.kind == .request else { return compare(recorded, .client, link) }
    noteQuestion(opcode, link)
    answerUnrecordedRequests(link, until: step)
    if opcode == ExchangeMTURequest.opcode {
      core.exchangeMTU(on: id)
      pump()
      return compare(recorded, .client, link)
    }
    if let ours = front(.client, link) {
      // Both hosts continue the same operation, or one does not as it should.
      if ours == recorded || !Self.isDiscovery(ours.opcode) || isSameWalk(ours, recorded) {
        return compare(recorded, .client, link)
      }
    }
    guard issue(recorded, link, id) else { return skip(.noCall) }
    pump()
    if Self.isDiscovery(opcode), let ours = front(.client, link), ours != recorded {
      // Our client begins the same discovery otherwise.
      answerUnrecordedRequests(link)
      return skip(.discovery)
    }
    compare(recorded, .client, link)
  }
  /// The first request of the recorded host on a link: ours would have sent its MTU before, as Central or if the peer
  /// had not. Vol 3, Part F, §3.4.2.1.
  private mutating func noteQuestion(_ opcode: ATTOpcode, _ link: Int) {
    guard live[link]?.hasAsked == false else { return }
    live[link]?.hasAsked = true
    guard script.links[link].begin != nil, opcode != ExchangeMTURequest.opcode else { return }
    let peers = script.firstExchange(on: link, of: .fromController)
    if result.links[link].role == .central || peers.map({ $0 > step }) ?? true { result.use(.mtuExchange, at: number) }
  }
  /// Leaves the current request of the recorded host out, and its response.
  private mutating func skip(_ freedom: ReplayFreedom) {
    result.pass(freedom, at: number)
    if let partner = script.steps[step].partner { skipped.insert(partner) }
  }
  /// The same questions from another handle on: neither is a new discovery.
  private func isSameWalk(_ ours: [UInt8], _ recorded: [UInt8]) -> Bool {
    ours.opcode == recorded.opcode && ours.count == recorded.count && ours.count >= 5 && ours[3...] == recorded[3...]
      && ours.little16(1) > 1 && recorded.little16(1) > 1
  }

  /// Answers the questions of our client that the recorded one does not ask next: the trace has no answers for them.
  /// `until`: the step of the recorded host's next request, if that is the current one.
  mutating func answerUnrecordedRequests(_ link: Int, until current: Int? = nil) {
    var left = Self.mostQuestions
    while left > 0, let ours = front(.client, link), Self.isDiscovery(ours.opcode) {
      left -= 1
      let next = current ?? script.nextRequest(after: step, on: link)
      if let next {
        let payload = script.steps[next].payload, recorded = UUIDForms.shortened(payload) ?? payload
        if recorded == ours || isSameWalk(ours, recorded) { return }
        // It follows within the 30 s of a transaction. Vol 3, Part F, §3.3.3.
      }
      take(.client, link)
      result.use(.discovery, at: number)
      // Attribute Not Found ends the search. Vol 3, Part F, §3.4.1.1.
      let handle = ours.count >= 3 ? Array(ours[1..<3]) : [0, 0]
      feed(
        [ErrorResponse.opcode.rawValue, ours[0]] + handle + [ATTError.attributeNotFound.rawValue], on: .attribute,
        of: link)
    }
  }

  /// Makes the application's operation that begins with this request. False if our client has none.
  private mutating func issue(_ request: [UInt8], _ link: Int, _ id: LinkID) -> Bool {
    guard request.count >= 3, request.opcode != ExecuteWriteRequest.opcode else { return false }
    let handle = AttributeHandle(rawValue: request.little16(1)), number = newID()
    let range = HandleRange(handle, AttributeHandle(rawValue: request.little16(3)))
    let later = operation(request, link)
    switch request.opcode {
    case FindInformationRequest.opcode where request.count == 5:
      core.withClient(of: id, id: number) { $0.discoverDescriptors(number, in: range) }
    case FindByTypeValueRequest.opcode
    where request.count >= 9 && request.little16(5) == 0x2800 && handle.rawValue == 1:
      guard let uuid = BluetoothUUID(wire: request[7...]) else { return false }
      core.withClient(of: id, id: number) { $0.discoverPrimaryServices(number, uuid) }
    case ReadByTypeRequest.opcode:
      guard request.count >= 7, let type = BluetoothUUID(wire: request[5...]) else { return false }
      core.withClient(of: id, id: number) {
        switch type {
        case .include: $0.discoverIncludedServices(number, in: range)
        case .characteristic: $0.discoverCharacteristics(number, in: range)
        default: $0.read(number, uuid: type, in: range)
        }
      }
    case ReadByGroupTypeRequest.opcode
    where request.count == 7 && request.little16(5) == 0x2800 && handle.rawValue == 1:
      core.withClient(of: id, id: number) {
        if later.isWhole {
          $0.discoverAll(number, infersDescriptors: later.infersDescriptors)
        } else {
          $0.discoverPrimaryServices(number)
        }
      }
    case ReadRequest.opcode where request.count == 3:
      core.withClient(of: id, id: number) {
        if later.isLong { $0.readLong(number, handle) } else { $0.read(number, handle) }
      }
    case ReadMultipleRequest.opcode, ReadMultipleVariableRequest.opcode:
      let handles = stride(from: 1, to: request.count - 1, by: 2).map {
        AttributeHandle(rawValue: request.little16($0))
      }
      core.withClient(of: id, id: number) {
        if request.opcode == ReadMultipleRequest.opcode {
          $0.readMultiple(number, handles)
        } else {
          $0.readMultipleVariable(number, handles)
        }
      }
    case WriteRequest.opcode:
      let value = Array(request[3...])
      core.withClient(of: id, id: number) { client in
        let octets = value
        client.write(number, handle, octets.span)
      }
    case PrepareWriteRequest.opcode:
      let values = later.parts
      core.withClient(of: id, id: number) { client in
        if values.count == 1 {
          let octets = values[0].value
          client.writeLong(number, values[0].handle, octets.span)
        } else {
          client.writeReliable(number, values)
        }
      }
    default: return false
    }
    return true
  }

  /// What the recorded host asks after this request, as far as it decides which operation this is.
  private struct Operation {
    /// It searches for secondary services too, as a discovery of everything does.
    var isWhole = false
    /// It leaves out descriptors that it can infer.
    var infersDescriptors = true
    /// It reads the rest of the value.
    var isLong = false
    /// What it prepares: a value for each handle.
    var parts: [(handle: AttributeHandle, value: [UInt8])] = []
  }
  private func operation(_ request: [UInt8], _ link: Int) -> Operation {
    var operation = Operation()
    switch request.opcode {
    case ReadRequest.opcode:
      let next = script.nextRequest(after: step, on: link).map { script.steps[$0].payload }
      operation.isLong =
        next?.opcode == ReadBlobRequest.opcode && next?.dropFirst().prefix(2) == request.dropFirst().prefix(2)
    case ReadByGroupTypeRequest.opcode:
      var at = step, left = Self.mostQuestions
      while left > 0, let next = script.nextRequest(after: at, on: link) {
        left -= 1
        let pdu = script.steps[next].payload
        guard pdu.opcode == ReadByGroupTypeRequest.opcode else {
          operation.isWhole = isSearchOfEverything(pdu, from: step, to: at, link)
          break
        }
        operation.isWhole = pdu.count == 7 && pdu.little16(5) == 0x2801
        if operation.isWhole { break }
        at = next
      }
      if operation.isWhole {
        operation.infersDescriptors =
          requestsAlike(link, infersDescriptors: true) >= requestsAlike(link, infersDescriptors: false)
      }
    case PrepareWriteRequest.opcode:
      var at: Int? = step
      while let here = at, script.steps[here].payload.opcode == PrepareWriteRequest.opcode,
        operation.parts.count < Self.mostQuestions
      {
        let pdu = script.steps[here].payload
        guard pdu.count >= 5 else { break }
        let handle = AttributeHandle(rawValue: pdu.little16(1))
        if operation.parts.last?.handle == handle, pdu.little16(3) > 0 {
          operation.parts[operation.parts.count - 1].value += pdu[5...]
        } else {
          operation.parts.append((handle, Array(pdu[5...])))
        }
        at = script.nextRequest(after: here, on: link)
      }
    default: break
    }
    return operation
  }

  /// How many of the recorded requests from the current one on our client makes in such a discovery, if it gets the
  /// recorded answers.
  private func requestsAlike(_ link: Int, infersDescriptors: Bool) -> Int {
    var client = Client(), packet = PacketBuffer(), count = 0, next: Int? = step
    let bearer = BearerID(rawValue: 0), mtu = Bearer.largestMTU
    client.open(bearer)
    client.discoverAll(RequestID(rawValue: 0), infersDescriptors: infersDescriptors)
    while let here = next, let answer = script.steps[here].partner,
      packet.fill({ client.nextRequest(on: bearer, after: 0, mtu: mtu, into: &$0) }),
      packet.bytes == script.steps[here].payload
    {
      let octets = script.steps[answer].payload
      guard let response = try? ATTPDU(octets.span) else { break }
      client.receive(response: response, in: octets.span, on: bearer, mtu: mtu, now: .zero)
      count += 1
      next = script.nextRequest(after: here, on: link)
    }
    return count
  }
  /// A search for includes in one request over all services, which lie at all handles and so leave none for secondary
  /// services. `first` … `last`: the steps of the requests for primary services.
  private func isSearchOfEverything(_ request: [UInt8], from first: Int, to last: Int, _ link: Int) -> Bool {
    guard request.count == 7, request.opcode == ReadByTypeRequest.opcode, request.little16(5) == 0x2802,
      request.little16(1) == 1,
      request.little16(3) == 0xFFFF
    else { return false }
    var next = 1
    for index in script.steps(from: first, on: link) where index <= last {
      guard script.steps[index].payload.opcode == ReadByGroupTypeRequest.opcode,
        let partner = script.steps[index].partner
      else { continue }
      let response = script.steps[partner].payload
      guard response.count > 1, response.opcode == ReadByGroupTypeResponse.opcode, response[1] >= 6 else { continue }
      for at in stride(from: 2, to: response.count - 3, by: Int(response[1])) {
        guard Int(response.little16(at)) == next else { return false }
        next = Int(response.little16(at + 2)) + 1
      }
    }
    return next == 0x1_0000
  }
  /// Both hosts continue a search for characteristics: ours behind the last declaration, the recorded one behind its
  /// value, where no declaration can be. Vol 3, Part G, §3.3.2, §4.6.1.
  func continuesBehindValue(_ recorded: [UInt8], _ ours: [UInt8], _ link: Int) -> Bool {
    guard recorded.count == 7, recorded.opcode == ReadByTypeRequest.opcode, recorded.little16(5) == 0x2803,
      ours.count == 7,
      ours.opcode == ReadByTypeRequest.opcode, ours[3...] == recorded[3...],
      let before = script.previous(
        before: step, on: link, where: { $0.stream == .server && $0.direction == .fromController })
    else { return false }
    let response = script.steps[before].payload
    guard response.count > 1, response.opcode == ReadByTypeResponse.opcode, response[1] >= 7,
      response.count >= 2 + Int(response[1])
    else {
      return false
    }
    let last = response.count - Int(response[1]), handle = response.little16(last), value = response.little16(last + 3)
    return value > handle && ours.little16(1) == handle &+ 1 && recorded.little16(1) == value &+ 1
  }

  private mutating func writeCommand(_ recorded: [UInt8], _ link: Int, _ id: LinkID) {
    guard recorded.count >= 3 else { return }
    let handle = AttributeHandle(rawValue: recorded.little16(1)), value = Array(recorded[3...])
    if recorded.opcode == WriteCommand.opcode {
      _ = core.write(command: value.span, to: handle, on: id)
    } else if value.count >= 12 {
      let signed = Array(value.dropLast(12)), counter = value.suffix(12)
      giveSignatureKey(counter: UInt32(truncatingIfNeeded: counter.prefix(4).little64), link)
      if case .storeBond = core.write(signed: signed.span, to: handle, on: id) {
        // The driver has stored the bond.
        for bond in core.allBonds { core.stored(bond) }
        _ = core.write(signed: signed.span, to: handle, on: id)
      }
    }
    pump()
  }
}

extension BluetoothUUID {
  /// 2 or 16 octets, as ATT has them. Vol 3, Part F, §3.2.1.
  init?(wire octets: some Collection<UInt8>) {
    func number(_ part: some Collection<UInt8>) -> UInt64 {
      part.enumerated().reduce(0) { $0 | UInt64($1.element) << UInt64(8 * $1.offset) }
    }
    switch octets.count {
    case 2: self = .short(UInt16(number(octets)))
    case 16: self = .long(low: number(octets.prefix(8)), high: number(octets.dropFirst(8)))
    default: return nil
    }
  }
}
