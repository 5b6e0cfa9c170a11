// B1 (decode + walk), B2 (encode) and x.loop (neither: the cost of the loop around them): the ATT codec as a caller in
// another module uses it.
import BindruneATT
import BindruneWire

func codec(_ id: String, _ workloads: String, _ repetitions: Int, _ batches: Int) {
  let corpus = Corpus(workloads, "corpus.bin")
  if id == "x.loop" {
    measure(id, items: corpus.count, repetitions: repetitions, batches: batches) { loop(corpus, $0) }
    return
  }
  do throws(WireError) {
    if id == "B1" {
      _ = try decodeAndWalk(corpus, 1)
      measure(id, items: corpus.count, repetitions: repetitions, batches: batches) {
        (try? decodeAndWalk(corpus, $0)) ?? 0
      }
    } else {
      let pdus = UnsafeMutablePointer<ATTPDU>.allocate(capacity: corpus.count)
      let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 1024, alignment: 64)
      for i in 0..<corpus.count {
        let packet = unsafe corpus[i]
        unsafe (pdus + i).initialize(to: try ATTPDU(packet.span))
        var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
        try unsafe pdus[i].encode(into: &output, from: packet.span)
        let count = unsafe output.finalize(for: room)
        guard unsafe packet.elementsEqual(room[..<count]) else { fail("PDU \(i) does not encode to what it was") }
      }
      measure(id, items: corpus.count, repetitions: repetitions, batches: batches) {
        (try? unsafe encode(corpus, pdus, room, $0)) ?? 0
      }
    }
  } catch { fail("\(error)") }
}

@inline(never) func loop(_ corpus: Corpus, _ repetitions: Int) -> UInt64 {
  var sum: UInt64 = 0
  for _ in 0..<repetitions {
    for i in 0..<corpus.count { sum &+= unsafe UInt64(corpus[i][0]) }
  }
  return sum
}

/// Decode is inlined into its one consumer, this loop; walk is a call, as in the C bound.
@inline(never) func decodeAndWalk(_ corpus: Corpus, _ repetitions: Int) throws(WireError) -> UInt64 {
  var sum: UInt64 = 0
  for _ in 0..<repetitions {
    for i in 0..<corpus.count {
      let packet = unsafe corpus[i].span
      sum &+= walk(try ATTPDU(packet), packet)
    }
  }
  return sum
}

@inline(never) func encode(
  _ corpus: Corpus, _ pdus: UnsafeMutablePointer<ATTPDU>, _ room: UnsafeMutableRawBufferPointer, _ repetitions: Int
) throws(WireError) -> UInt64 {
  var sum: UInt64 = 0
  for _ in 0..<repetitions {
    for i in 0..<corpus.count {
      var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
      try unsafe pdus[i].encode(into: &output, from: corpus[i].span)
      sum &+= UInt64(output.byteCount)
      _ = unsafe output.finalize(for: room)
    }
  }
  return sum
}

@inline(__always) func number(_ handle: AttributeHandle) -> UInt64 { UInt64(handle.rawValue) }
@inline(__always) func number(_ uuid: BluetoothUUID) -> UInt64 {
  switch uuid {
  case .short(let value): UInt64(value)
  case .long(let low, _): 16 &+ (low & 0xFF)
  }
}
/// The count and the first octet: proof that the range was found, without the cost of reading it all.
@inline(__always) func touch(_ octets: Octets, _ packet: Span<UInt8>) -> UInt64 {
  UInt64(octets.count) &+ (octets.isEmpty ? 0 : UInt64(octets.byte(0, in: packet)))
}

/// Every field and every list entry of `pdu`, added up; the C bound adds the same.
@inline(never) func walk(_ pdu: ATTPDU, _ packet: Span<UInt8>) -> UInt64 {
  switch pdu {
  case .errorResponse(let m):
    return 0x01 &+ UInt64(m.requestOpcodeInError.rawValue) &+ number(m.attributeHandleInError)
      &+ UInt64(m.errorCode.rawValue)
  case .exchangeMTURequest(let m): return 0x02 &+ UInt64(m.clientRxMTU)
  case .exchangeMTUResponse(let m): return 0x03 &+ UInt64(m.serverRxMTU)
  case .findInformationRequest(let m): return 0x04 &+ number(m.startingHandle) &+ number(m.endingHandle)
  case .findInformationResponse(let m):
    var sum = 0x05 &+ UInt64(m.format.rawValue)
    var cursor = m.informationData.cursor
    while let entry = cursor.next(in: packet) { sum &+= number(entry.handle) &+ number(entry.uuid) }
    return sum
  case .findByTypeValueRequest(let m):
    return 0x06 &+ number(m.startingHandle) &+ number(m.endingHandle) &+ UInt64(m.attributeType.rawValue)
      &+ touch(m.attributeValue, packet)
  case .findByTypeValueResponse(let m):
    var sum: UInt64 = 0x07
    var cursor = m.handlesInformationList.cursor
    while let entry = cursor.next(in: packet) {
      sum &+= number(entry.foundAttributeHandle) &+ number(entry.groupEndHandle)
    }
    return sum
  case .readByTypeRequest(let m):
    return 0x08 &+ number(m.startingHandle) &+ number(m.endingHandle) &+ number(m.attributeType)
  case .readByTypeResponse(let m):
    var sum: UInt64 = 0x09
    var cursor = m.attributeDataList.cursor
    while let entry = cursor.next(in: packet) {
      sum &+= number(entry.attributeHandle) &+ touch(entry.attributeValue, packet)
    }
    return sum
  case .readRequest(let m): return 0x0A &+ number(m.attributeHandle)
  case .readResponse(let m): return 0x0B &+ touch(m.attributeValue, packet)
  case .readBlobRequest(let m): return 0x0C &+ number(m.attributeHandle) &+ UInt64(m.valueOffset)
  case .readBlobResponse(let m): return 0x0D &+ touch(m.partAttributeValue, packet)
  case .readMultipleRequest(let m): return sum(0x0E, m.setOfHandles, packet)
  case .readMultipleResponse(let m): return 0x0F &+ touch(m.setOfValues, packet)
  case .readByGroupTypeRequest(let m):
    return 0x10 &+ number(m.startingHandle) &+ number(m.endingHandle) &+ number(m.attributeGroupType)
  case .readByGroupTypeResponse(let m):
    var sum: UInt64 = 0x11
    var cursor = m.attributeDataList.cursor
    while let entry = cursor.next(in: packet) {
      sum &+= number(entry.attributeHandle) &+ number(entry.endGroupHandle) &+ touch(entry.attributeValue, packet)
    }
    return sum
  case .writeRequest(let m): return 0x12 &+ number(m.attributeHandle) &+ touch(m.attributeValue, packet)
  case .writeResponse: return 0x13
  case .prepareWriteRequest(let m):
    return 0x16 &+ number(m.attributeHandle) &+ UInt64(m.valueOffset) &+ touch(m.partAttributeValue, packet)
  case .prepareWriteResponse(let m):
    return 0x17 &+ number(m.attributeHandle) &+ UInt64(m.valueOffset) &+ touch(m.partAttributeValue, packet)
  case .executeWriteRequest(let m): return 0x18 &+ UInt64(m.flags.rawValue)
  case .executeWriteResponse: return 0x19
  case .handleValueNotification(let m): return 0x1B &+ number(m.attributeHandle) &+ touch(m.attributeValue, packet)
  case .handleValueIndication(let m): return 0x1D &+ number(m.attributeHandle) &+ touch(m.attributeValue, packet)
  case .handleValueConfirmation: return 0x1E
  case .readMultipleVariableRequest(let m): return sum(0x20, m.setOfHandles, packet)
  case .readMultipleVariableResponse(let m):
    var sum: UInt64 = 0x21
    var cursor = m.lengthValueTupleList.cursor
    while let entry = cursor.next(in: packet) { sum &+= touch(entry.attributeValue, packet) }
    return sum
  case .multipleHandleValueNotification(let m):
    var sum: UInt64 = 0x23
    var cursor = m.handleLengthValueTupleList.cursor
    while let entry = cursor.next(in: packet) {
      sum &+= number(entry.attributeHandle) &+ touch(entry.attributeValue, packet)
    }
    return sum
  case .writeCommand(let m): return 0x52 &+ number(m.attributeHandle) &+ touch(m.attributeValue, packet)
  case .signedWriteCommand(let m):
    return 0xD2 &+ number(m.attributeHandle) &+ touch(m.attributeValue, packet)
      &+ touch(m.authenticationSignature, packet)
  }
}

@inline(__always)
func sum(_ opcode: UInt64, _ handles: WireList<AttributeHandle>, _ packet: Span<UInt8>) -> UInt64 {
  var sum = opcode
  var cursor = handles.cursor
  while let handle = cursor.next(in: packet) { sum &+= number(handle) }
  return sum
}
