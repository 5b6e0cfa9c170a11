import BindruneWire

/// A closed set of three numbers.
enum Colour: UInt8, ClosedNumber, BitwiseCopyable, Sendable, CaseIterable {
  case red = 1
  case green = 2
  case blue = 7
}
/// Numbers of unusual widths.
struct UInt40: WireValue {
  var wire: UInt64 = 0
  static var width: Int { 5 }
  init() {}
  init?(wire: UInt64) { self.wire = wire }
}
struct UInt56: WireValue {
  var wire: UInt64 = 0
  static var width: Int { 7 }
  init() {}
  init?(wire: UInt64) { self.wire = wire }
}

/// Every kind of field in one message.
struct Everything: WireRecord {
  var small: UInt8 = 0, word: UInt16 = 0, three: UInt24 = 0, long: UInt32 = 0, five = UInt40(),
    address = DeviceAddress()
  var seven = UInt56(), huge: UInt64 = 0, signed: Int8 = 0, signedWord: Int16 = 0, flag = false, colour = Colour.red
  var handle: UInt16 = 0, boundary: UInt8 = 0, isLast = false, reserved: UInt8 = 0
  var key = Octets(), name = Octets()
  var fixed = WireList<Coloured>(), chained = WireList<Named>()
  var rest = Octets(), tail = Octets()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Small", &small)
    try visit.value("Word", &word)
    try visit.value("Three", &three)
    try visit.value("Long", &long)
    try visit.value("Five", &five)
    try visit.value("Address", &address)
    try visit.value("Seven", &seven)
    try visit.value("Huge", &huge)
    try visit.value("Signed", &signed)
    try visit.value("Signed Word", &signedWord)
    try visit.value("Flag", &flag)
    try visit.value("Colour", &colour)
    try visit.bits("Handle", &handle, 12)
    try visit.bits("Boundary", &boundary, 2)
    try visit.bits("Is Last", &isLast, 1)
    try visit.bits("Reserved", &reserved, 1)
    try visit.octets("Key", &key, .exactly(4))
    try visit.octets(lengthIn: "Name Length", UInt8.self, "Name", &name)
    try visit.list(countIn: "Num Fixed", "Fixed", &fixed)
    try visit.list(countIn: "Num Chained", "Chained", &chained)
    try visit.octets("Rest", &rest, .allBut(2))
    try visit.octets("Tail", &tail, .exactly(2))
  }
}
/// An entry of fixed length with a value that can be invalid.
struct Coloured: WireRecord {
  var colour = Colour.red, amount: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Colour", &colour)
    try visit.value("Amount", &amount)
  }
}
/// An entry with its own length field.
struct Named: WireRecord {
  var number: UInt8 = 0, name = Octets()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Number", &number)
    try visit.octets(lengthIn: "Length", UInt16.self, "Name", &name)
  }
}

/// A list of fixed entries up to the end.
struct Colours: WireRecord {
  var colours = WireList<Coloured>()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try visit.list("Colours", &colours) }
}
/// A list of fixed entries with a redundant length field.
struct MeasuredColours: WireRecord {
  var colours = WireList<Coloured>()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(strideIn: "Length", "Colours", &colours)
  }
}
/// A list of entries that end in a UUID, whose length the peer gives.
struct Types: WireRecord {
  var types = WireList<Typed>()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(strideIn: "Length", "Types", &types)
  }
}
struct Typed: WireRecord {
  var handle: UInt16 = 0, type = BluetoothUUID()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Handle", &handle)
    try visit.uuid("Type", &type)
  }
}
/// Entries whose length the message gives.
struct Blobs: WireRecord {
  var blobs = WireList<Blob>()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(strideIn: "Length", "Blobs", &blobs)
  }
}
struct Blob: WireRecord {
  var octets = Octets()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try visit.octets("Octets", &octets) }
}
