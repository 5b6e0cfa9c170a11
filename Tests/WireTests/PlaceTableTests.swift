import BindruneWire
import TestSupport
import Testing

@Suite struct PlaceTableTests {
  /// The model is a linear search in a list of numbers.
  @Test(arguments: [UInt16(4), 40, .max]) func likeASearch(_ largest: UInt16) {
    var table = PlaceTable(), list: [UInt16] = [], chance = SplitMix64(seed: Fuzz.seed)
    for _ in 0..<(largest == .max ? 60 : 2_000) {
      let number = UInt16.random(in: 0...largest, using: &chance)
      if let place = list.firstIndex(of: number) {
        list.remove(at: place)
        table.remove(number)
      } else if list.count < 16 {
        list.append(number)
        table.append(number)
      }
      table.remove(largest == number ? 0 : largest)
      list.removeAll { $0 == (largest == number ? 0 : largest) }
      for other in Set(list + [number, 0, largest]) { #expect(table[other] == list.firstIndex(of: other)) }
    }
    table.removeAll()
    for number in list + [largest] { #expect(table[number] == nil) }
  }
}
