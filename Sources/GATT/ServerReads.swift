import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

// Reading. Vol 3, Part F, §3.4.4.
//
// ## Lists over dynamic values
// Read By Type and both Read Multiple process their attributes in order. At a dynamic value they stop: the client's
// session keeps the response so far (`Collected`, at most one ATT_MTU), the application supplies this one value, and
// the loop resumes where it stopped, with the permissions of that moment. So there is one question at a time and one
// response in the end, and the application is never asked for a value that would not fit.
//
// Phases of a request: asked → collecting (once for each value of the application) → answered.

/// What a list request has collected while the application supplies the next value.
struct Collected: ~Copyable {
  /// The response, opcode first; empty before the first value.
  var response = UniqueArray<UInt8>()
  /// The Set Of Handles of a Read Multiple.
  var handles = UniqueArray<UInt8>()

  mutating func keep(_ output: inout OutputRawSpan, from start: Int) {
    response.removeAll(keepingCapacity: true)
    for index in start..<output.byteCount { response.append(output.octet(at: index)) }
    output.truncate(to: start)
  }
}

extension Server {
  // MARK: Read By Type

  mutating func readByType(
    _ request: ReadByTypeRequest, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    try checkRange(request.startingHandle, request.endingHandle)
    return try readByType(
      request, from: request.startingHandle, room: response.freeCapacity, response.byteCount, session, &response)
  }

  /// Appends the values found from `next` on to the response, which begins at `start` and has `room` octets.
  private mutating func readByType(
    _ request: ReadByTypeRequest, from next: AttributeHandle, room: Int, _ start: Int, _ session: Int,
    _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    guard let type = database.index(of: request.attributeType) else {
      throw Refusal(request.startingHandle, .attributeNotFound)
    }
    let group = database.uuids[type].types
    let first = database.firstPosition(from: next)
    let end = start &+ room
    // The length of each value, as soon as there is one.
    var length = response.byteCount > start ? Int(response.octet(at: start &+ 1)) &- 2 : -1
    var index = Database.lowerBound(database.grouped.span, group, first)
    while index < group.upperBound {
      if length >= 0 {
        index = appendPlain(index..<group.upperBound, request.endingHandle, length, end, &response)
        if index == group.upperBound { break }
      }
      let position = Int(database.grouped[index])
      index &+= 1
      let attribute = database.attributes[position]
      guard attribute.handle.rawValue <= request.endingHandle.rawValue else { break }
      if let error = readError(position, session) {
        // §3.4.4.1: an error of the first attribute is the answer, one of a later attribute ends the list.
        if length < 0 { throw Refusal(attribute.handle, error) }
        break
      }
      if attribute.kind == .dynamic {
        guard length < 0 || end &- response.byteCount >= length &+ 2 else { break }
        try askToRead(attribute.handle, 0, .list(request), room: room, session)
        sessions[session].collected.keep(&response, from: start)
        return .later
      }
      let count = min(Int(attribute.count), 253)
      guard appendEntry(attribute.handle, count, end, start, &length, &response) else { break }
      appendValue(position, from: 0, atMost: length, session, &response)
      if attribute.handle == database.special.databaseHash { readDatabaseHash(session) }
    }
    if length < 0 { throw Refusal(request.startingHandle, .attributeNotFound) }
    return .now
  }
  /// Appends values that need no check: stored by the server, readable by everyone, of the list's length, with room for
  /// the whole entry. Returns the first index in `grouped` that needs a closer look. Without this path a characteristic
  /// costs twice the instructions.
  @inline(__always)
  private mutating func appendPlain(
    _ indices: Range<Int>, _ last: AttributeHandle, _ length: Int, _ end: Int, _ response: inout OutputRawSpan
  ) -> Int {
    let grouped = database.grouped.span, attributes = database.attributes.span, values = database.values.span
    for index in indices {
      let attribute = attributes[Int(grouped[index])]
      guard attribute.kind == .stored, attribute.permissions.read == .open, Int(attribute.count) == length,
        attribute.handle.rawValue <= last.rawValue, attribute.handle != database.special.databaseHash,
        end &- response.byteCount >= length &+ 2
      else { return index }
      response.append(littleEndian: attribute.handle.rawValue)
      response.append(contentsOf: values.extracting(attribute.range))
    }
    return indices.upperBound
  }
  /// Begins the entry of a value of `count` octets; false where the list ends before it. §3.4.4.2: a value is cut to
  /// fit one response and a length of one octet; all values have one length.
  @inline(__always)
  private mutating func appendEntry(
    _ handle: AttributeHandle, _ count: Int, _ end: Int, _ start: Int, _ length: inout Int,
    _ response: inout OutputRawSpan
  ) -> Bool {
    if length < 0 {
      length = min(count, end &- response.byteCount &- 4)
      response.append(ReadByTypeResponse.opcode.rawValue)
      response.append(UInt8(truncatingIfNeeded: length &+ 2))
    } else {
      guard count == length, end &- response.byteCount >= count &+ 2 else { return false }
    }
    response.append(littleEndian: handle.rawValue)
    return true
  }

  // MARK: Read and Read Blob

  /// Read (`offset` nil) and Read Blob.
  @inline(__always)
  mutating func read(
    _ handle: AttributeHandle, _ offset: Int?, _ opcode: ATTOpcode, _ session: Int,
    _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    let position = try readable(handle, session)
    let attribute = database.attributes[position]
    if attribute.kind == .dynamic {
      try askToRead(handle, offset ?? 0, .read(opcode), room: response.freeCapacity, session)
      return .later
    }
    let from = offset ?? 0
    guard from <= Int(attribute.count) else { throw Refusal(handle, .invalidOffset) }
    // §3.4.4.5 allows 0x0B for a short value; an answer helps the client more.
    response.append(offset == nil ? ReadResponse.opcode.rawValue : ReadBlobResponse.opcode.rawValue)
    appendValue(position, from: from, atMost: response.freeCapacity, session, &response)
    if handle == database.special.databaseHash { readDatabaseHash(session) }
    return .now
  }

  // MARK: Read Multiple and Read Multiple Variable

  mutating func readMultiple(
    _ handles: Octets, in packet: Span<UInt8>, _ opcode: ATTOpcode, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    let start = response.byteCount, handles = packet.extracting(handles.range)
    let room = response.freeCapacity
    response.append(
      opcode == ReadMultipleRequest.opcode
        ? ReadMultipleResponse.opcode.rawValue : ReadMultipleVariableResponse.opcode.rawValue)
    let answer = try readMultiple(handles, from: 0, opcode, room: room, start, session, &response)
    if answer == .later {
      sessions[session].collected.keep(&response, from: start)
      sessions[session].collected.handles.removeAll(keepingCapacity: true)
      sessions[session].collected.handles.append(copying: handles)
    }
    return answer
  }

  /// Appends the values of the handles from octet `index` on. Every handle is checked, even when no value fits any
  /// more: §3.4.4.7 and §3.4.4.11 let an error of any of them be the answer.
  private mutating func readMultiple(
    _ handles: Span<UInt8>, from index: Int, _ opcode: ATTOpcode, room: Int, _ start: Int, _ session: Int,
    _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    let end = start &+ room
    let isVariable = opcode == ReadMultipleVariableRequest.opcode
    var index = index, isFull = false
    while index &+ 1 < handles.count {
      let handle = AttributeHandle(rawValue: UInt16(handles[index]) | UInt16(handles[index &+ 1]) << 8)
      index &+= 2
      let position = try readable(handle, session)
      // §3.4.4.8: the response is cut at ATT_MTU − 1 octets. §3.4.4.12: likewise, but not within a Value Length.
      let free = end &- response.byteCount
      if isVariable ? free < 2 : free == 0 { isFull = true }
      if isFull { continue }
      if database.attributes[position].kind == .dynamic {
        try askToRead(handle, 0, .multiple(opcode, next: index), room: room, session)
        return .later
      }
      let count = Int(database.attributes[position].count)
      if isVariable { response.append(littleEndian: UInt16(truncatingIfNeeded: count)) }
      appendValue(position, from: 0, atMost: isVariable ? free &- 2 : free, session, &response)
      if handle == database.special.databaseHash { readDatabaseHash(session) }
    }
    return .now
  }

  // MARK: The application's value

  /// Resumes a request with the application's `value`. `response` has at least the request's room.
  mutating func resume(
    _ pending: PendingRequest, with value: Span<UInt8>, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) -> ServerAnswer {
    let start = response.byteCount, room = min(pending.room, response.freeCapacity), end = start &+ room
    // The database or the link's security may have changed meanwhile.
    _ = try readable(pending.handle, session)
    let value = value.extracting(first: AttributeValue.longest)
    switch pending.kind {
    case .write, .execute: throw Refusal(.unlikelyError)
    case .read(let opcode):
      response.append(opcode == ReadRequest.opcode ? ReadResponse.opcode.rawValue : ReadBlobResponse.opcode.rawValue)
      response.append(contentsOf: value.extracting(first: room &- 1))
      return .now
    case .list(let request):
      response.append(contentsOf: sessions[session].collected.response.span)
      var length = response.byteCount > start ? Int(response.octet(at: start &+ 1)) &- 2 : -1
      guard appendEntry(pending.handle, min(value.count, 253), end, start, &length, &response) else { return .now }
      response.append(contentsOf: value.extracting(first: length))
      guard pending.handle.rawValue < request.endingHandle.rawValue else { return .now }
      let next = AttributeHandle(rawValue: pending.handle.rawValue &+ 1)
      return try readByType(request, from: next, room: room, start, session, &response)
    case .multiple(let opcode, let next):
      // Moved out of the session while the loop, which may change the session, reads the handles.
      var collected = Collected()
      swap(&collected, &sessions[session].collected)
      defer { swap(&collected, &sessions[session].collected) }
      response.append(contentsOf: collected.response.span)
      if opcode == ReadMultipleVariableRequest.opcode { response.append(littleEndian: UInt16(value.count)) }
      response.append(contentsOf: value.extracting(first: end &- response.byteCount))
      let answer = try readMultiple(collected.handles.span, from: next, opcode, room: room, start, session, &response)
      if answer == .later { collected.keep(&response, from: start) }
      return answer
    }
  }

  /// Asks the application for a value from `offset` on.
  private mutating func askToRead(
    _ handle: AttributeHandle, _ offset: Int, _ kind: PendingRequest.Kind, room: Int, _ session: Int
  ) throws(Refusal) {
    guard hasRoom(effects: 1, octets: 0) else { throw Refusal(handle, .insufficientResources) }
    let id = ask(kind, handle, room: room, session)
    effects.append(.readRequested(id, sessions[session].bearer, handle, offset: UInt16(truncatingIfNeeded: offset)))
  }

  /// Appends at most `limit` octets of a stored value, from `offset` on, which lies within it.
  @inline(__always)
  private mutating func appendValue(
    _ position: Int, from offset: Int, atMost limit: Int, _ session: Int, _ response: inout OutputRawSpan
  ) {
    let attribute = database.attributes[position]
    let count = min(Int(attribute.count) &- offset, limit)
    switch attribute.kind {
    case .stored, .dynamic:
      let from = Int(attribute.start) &+ offset
      response.append(contentsOf: database.values.span.extracting(from..<(from &+ count)))
    case .configuration, .features:
      let value =
        attribute.kind == .features
        ? UInt16(clients[sessions[session].client].features.rawValue)
        : clients[sessions[session].client].configurations[attribute.slot].rawValue
      for i in offset..<(offset &+ count) { response.append(UInt8(truncatingIfNeeded: value >> (8 * i))) }
    }
  }

  // MARK: Read By Group Type

  mutating func readByGroupType(
    _ request: ReadByGroupTypeRequest, _ session: Int, _ response: inout OutputRawSpan
  ) throws(Refusal) {
    try checkRange(request.startingHandle, request.endingHandle)
    // Vol 3, Part G, §2.5.3: the Characteristic grouping type is not for this request.
    guard request.attributeGroupType == .primaryService || request.attributeGroupType == .secondaryService else {
      throw Refusal(request.startingHandle, .unsupportedGroupType)
    }
    let group = database.index(of: request.attributeGroupType).map { database.uuids[$0].types } ?? 0..<0
    let first = database.firstPosition(from: request.startingHandle)
    let values = database.values.span, grouped = database.grouped.span, attributes = database.attributes.span
    var length = -1
    for index in Database.lowerBound(grouped, group, first)..<group.upperBound {
      let attribute = attributes[Int(grouped[index])]
      guard attribute.handle.rawValue <= request.endingHandle.rawValue else { break }
      if length < 0 {
        length = Int(attribute.count)
        response.append(ReadByGroupTypeResponse.opcode.rawValue)
        response.append(UInt8(truncatingIfNeeded: length &+ 4))
      }
      guard Int(attribute.count) == length, response.freeCapacity >= length &+ 4 else { break }
      response.append(littleEndian: UInt32(attribute.handle.rawValue) | UInt32(attribute.groupEnd.rawValue) &<< 16)
      response.append(contentsOf: values.extracting(attribute.range))
    }
    if length < 0 { throw Refusal(request.startingHandle, .attributeNotFound) }
  }
}
