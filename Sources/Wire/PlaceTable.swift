/// Where the element with a number stands in a list: links by connection handle, sessions by bearer. A look-up is one index,
/// as the numbers are small: the table is as long as the greatest that it has seen.
public struct PlaceTable: ~Copyable, Sendable {
  /// By number; `nowhere` where no element has it.
  @usableFromInline var places: [UInt16] = []
  @usableFromInline static var nowhere: UInt16 { .max }
  /// Elements of the list.
  private var count: UInt16 = 0

  public init() {}

  /// The place of the element with `number`; nil where the list has none.
  @inlinable @inline(__always) public subscript(_ number: UInt16) -> Int? {
    let number = Int(number)
    guard number < places.count else { return nil }
    let place = places[number]
    return place == Self.nowhere ? nil : Int(place)
  }

  /// An element with `number`, which none has, is appended to the list.
  public mutating func append(_ number: UInt16) {
    precondition(self[number] == nil, "two elements with the number \(number)")
    precondition(count != Self.nowhere, "more elements than there are places")
    while places.count <= Int(number) { places.append(Self.nowhere) }
    places[Int(number)] = count
    count += 1
  }
  /// The element with `number` is removed from the list; those behind it move up.
  public mutating func remove(_ number: UInt16) {
    guard let removed = self[number] else { return }
    places[Int(number)] = Self.nowhere
    count -= 1
    for other in places.indices where places[other] != Self.nowhere && Int(places[other]) > removed {
      places[other] -= 1
    }
  }
  /// The list is emptied.
  public mutating func removeAll() {
    places.removeAll(keepingCapacity: true)
    count = 0
  }
}
