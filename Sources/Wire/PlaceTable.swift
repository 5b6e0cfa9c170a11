/// The index of a numbered element in a list: links by connection handle, sessions by bearer. A look-up is one array
/// access, because the numbers are small: the table is as long as the greatest that it has contained.
public struct PlaceTable: ~Copyable, Sendable {
  /// By number; `nowhere` for unused numbers.
  @usableFromInline var places: [UInt16] = []
  @usableFromInline static var nowhere: UInt16 { .max }
  /// The number of elements in the list.
  private var count: UInt16 = 0

  public init() {}

  /// The index of the element with `number`; nil if the list has none.
  @inlinable @inline(__always) public subscript(_ number: UInt16) -> Int? {
    let number = Int(number)
    guard number < places.count else { return nil }
    let place = places[number]
    return place == Self.nowhere ? nil : Int(place)
  }

  /// Appends an element with the unused `number`.
  public mutating func append(_ number: UInt16) {
    precondition(self[number] == nil, "two elements with the number \(number)")
    precondition(count != Self.nowhere, "more elements than there are places")
    while places.count <= Int(number) { places.append(Self.nowhere) }
    places[Int(number)] = count
    count += 1
  }
  /// Removes the element with `number`; those behind it move up.
  public mutating func remove(_ number: UInt16) {
    guard let removed = self[number] else { return }
    places[Int(number)] = Self.nowhere
    count -= 1
    for other in places.indices where places[other] != Self.nowhere && Int(places[other]) > removed {
      places[other] -= 1
    }
  }
  /// Empties the list.
  public mutating func removeAll() {
    places.removeAll(keepingCapacity: true)
    count = 0
  }
}
