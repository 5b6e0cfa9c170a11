import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

// MARK: - Writing. Vol 3, Part F, §3.4.5

extension Server {
  mutating func write(
    _ request: WriteRequest, _ packet: Span<UInt8>, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    let handle = request.attributeHandle
    let value = packet.extracting(request.attributeValue.range)
    let position = try writable(handle, session)
    try checkWrite(position, at: 0, value, session)
    guard hasRoom(effects: 1, octets: value.count) else { throw Refusal(handle, .insufficientResources) }
    if database.attributes[position].kind == .dynamic {
      let id = ask(.write, handle, room: response.freeCapacity, session)
      effects.append(.writeRequested(id, sessions[session].bearer, handle, offset: 0, keep(value), following: 0))
      return .later
    }
    apply(position, value, session)
    response.append(WriteResponse.opcode.rawValue)
    return .now
  }

  /// Whether length and value allow `part` to be written at `offset`.
  @inline(__always)
  mutating func checkWrite(_ position: Int, at offset: Int, _ part: Span<UInt8>, _ session: Int) throws(Refusal) {
    let attribute = database.attributes[position]
    // §3.4.5.1: a fixed-length value takes fewer octets than it has, not more. §3.2.9: at most 512.
    guard offset &+ part.count <= Int(attribute.maximum) else {
      throw Refusal(attribute.handle, .invalidAttributeValueLength)
    }
    switch attribute.kind {
    case .stored, .dynamic: break
    case .configuration:
      guard accepts(configuration: attribute.slot, at: offset, part) else {
        throw Refusal(attribute.handle, .clientCharacteristicConfigurationImproperlyConfigured)
      }
    case .features:
      guard accepts(features: part, at: offset, session) else { throw Refusal(attribute.handle, .valueNotAllowed) }
    }
  }

  /// Performs a write that was checked, and reports it. The application gets a dynamic value without being asked.
  @inline(__always)
  mutating func apply(_ position: Int, _ value: Span<UInt8>, _ session: Int) {
    let attribute = database.attributes[position]
    switch attribute.kind {
    case .configuration: return configure(session, slot: attribute.slot, at: 0, value)
    case .features: return setFeatures(value, at: 0, session)
    case .stored: database.replace(position, with: value)
    case .dynamic: break
    }
    effects.append(.written(sessions[session].bearer, attribute.handle, offset: 0, keep(value)))
  }
}

// MARK: - Queued writes. Vol 3, Part F, §3.4.6

extension Server {
  mutating func prepareWrite(
    _ request: PrepareWriteRequest, _ packet: Span<UInt8>, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) {
    // §3.4.6.1: permissions now, offset and length when the queue is executed.
    _ = try writable(request.attributeHandle, session)
    // The echo is as long as the request: a request that exceeds it is not queued.
    guard packet.count <= response.freeCapacity else { throw Refusal(request.attributeHandle, .invalidPDU) }
    let part = packet.extracting(request.partAttributeValue.range)
    guard
      clients[sessions[session].client].prepared.append(
        request.attributeHandle, Int(request.valueOffset), part, limits: configuration)
    else { throw Refusal(request.attributeHandle, .prepareQueueFull) }
    let echo = PrepareWriteResponse.with {
      $0.attributeHandle = request.attributeHandle
      $0.valueOffset = request.valueOffset
      $0.partAttributeValue = request.partAttributeValue
    }
    response.append(PrepareWriteResponse.opcode.rawValue)
    guard echo.append(to: &response, from: packet) else { throw Refusal(request.attributeHandle, .invalidPDU) }
  }

  mutating func executeWrite(
    _ request: ExecuteWriteRequest, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    switch request.flags {
    case .cancel: clients[sessions[session].client].prepared.removeAll()
    case .write:
      // The request now owns the queue: on another bearer the client may fill the next one.
      swap(&clients[sessions[session].client].prepared, &sessions[session].executing)
      if try execute(session, asking: true, room: response.freeCapacity) == .later { return .later }
    default: throw Refusal(.invalidPDU)
    }
    response.append(ExecuteWriteResponse.opcode.rawValue)
    return .now
  }

  /// Writes the whole queue that the request executes, or nothing. Afterwards the queue is empty, unless the
  /// application must agree first: then `asking` is true and the queue waits. The application agrees to all of its
  /// values at once.
  mutating func execute(_ session: Int, asking: Bool, room: Int) throws(Refusal) -> ServerAnswer {
    var queue = PreparedWrites()
    swap(&queue, &sessions[session].executing)
    defer { swap(&queue, &sessions[session].executing) }
    do throws(Refusal) {
      let questions = try check(queue, session)
      guard hasRoom(effects: queue.runs.count, octets: queue.bytes.count) else { throw Refusal(.insufficientResources) }
      if asking, questions > 0 {
        askToWrite(queue, questions, room: room, session)
        return .later
      }
    } catch {
      queue.removeAll()
      throw error
    }
    commit(queue, session)
    queue.removeAll()
    return .now
  }

  /// Asks the application to write its values of a checked queue, in the queue's order.
  private mutating func askToWrite(_ queue: borrowing PreparedWrites, _ questions: Int, room: Int, _ session: Int) {
    let bearer = sessions[session].bearer
    var id: ServerRequestID?, left = questions
    for index in queue.runs.indices {
      let run = queue.runs[index]
      guard let position = database.position(of: run.handle), database.attributes[position].kind == .dynamic else {
        continue
      }
      let request = id ?? ask(.execute, run.handle, room: room, session)
      id = request
      left -= 1
      effects.append(
        .writeRequested(
          request, bearer, run.handle, offset: UInt16(truncatingIfNeeded: run.offset),
          keep(queue.bytes.span.extracting(run.octets)), following: left))
    }
  }

  /// Checks every write of the queue. Returns how many of them the application must agree to.
  private mutating func check(_ queue: borrowing PreparedWrites, _ session: Int) throws(Refusal) -> Int {
    // §3.4.6.3: writes prepared for the database before a change must not reach the new one.
    if let handle = queue.removedHandle { throw Refusal(handle, .databaseOutOfSync) }
    var questions = 0
    for index in queue.runs.indices {
      let run = queue.runs[index]
      let position = try writable(run.handle, session)
      let attribute = database.attributes[position]
      if attribute.kind == .dynamic {
        questions += 1
      } else {
        // §3.4.6.3: an offset is valid up to the length that the value has after the writes before it.
        guard run.offset <= max(Int(attribute.count), queue.end(of: run.handle, before: index)) else {
          throw Refusal(run.handle, .invalidOffset)
        }
      }
      try checkWrite(position, at: run.offset, queue.bytes.span.extracting(run.octets), session)
    }
    return questions
  }

  /// Performs a queue that was checked. A value of variable length that was written from its first octet on ends with
  /// the written octets, as after a Write Request (§3.4.5.1); otherwise the octets beyond remain.
  private mutating func commit(_ queue: borrowing PreparedWrites, _ session: Int) {
    let bearer = sessions[session].bearer
    for index in queue.runs.indices {
      let run = queue.runs[index]
      guard let position = database.position(of: run.handle) else { continue }
      let attribute = database.attributes[position]
      let octets = queue.bytes.span.extracting(run.octets)
      switch attribute.kind {
      case .dynamic: continue
      case .configuration: configure(session, slot: attribute.slot, at: run.offset, octets)
      case .features: setFeatures(octets, at: run.offset, session)
      case .stored:
        database.write(position, at: run.offset, octets)
        effects.append(.written(bearer, run.handle, offset: UInt16(truncatingIfNeeded: run.offset), keep(octets)))
      }
    }
    for index in queue.runs.indices where queue.runs[index].offset == 0 {
      let run = queue.runs[index]
      guard let position = database.position(of: run.handle) else { continue }
      let attribute = database.attributes[position]
      guard attribute.kind == .stored, !attribute.isFixed else { continue }
      database.attributes[position].count = UInt16(
        truncatingIfNeeded: queue.end(of: run.handle, before: queue.runs.count))
    }
  }
}
