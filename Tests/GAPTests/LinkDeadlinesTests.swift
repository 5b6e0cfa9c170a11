import BindruneWire
import TestSupport
import Testing

@testable import BindruneGAP

@Suite struct LinkDeadlinesTests {
  /// Links open, change and close; the tournament finds the same least deadline as a search of all.
  @Test(arguments: 0..<20) func theLeastOfAll(_ seed: Int) {
    var chance = SplitMix64(seed: UInt64(seed))
    var deadlines = LinkDeadlines(), plain: [Instant?] = []
    for _ in 0..<500 {
      switch Int.random(in: 0..<8, using: &chance) {
      case 0 where plain.count < 40:
        deadlines.append()
        plain.append(nil)
      case 1 where !plain.isEmpty && seed % 2 == 0:
        let index = Int.random(in: 0..<plain.count, using: &chance)
        deadlines.remove(at: index)
        plain.remove(at: index)
      case _ where !plain.isEmpty:
        let index = Int.random(in: 0..<plain.count, using: &chance)
        let time = Instant(nanoseconds: .random(in: 0..<50, using: &chance))
        plain[index] = Bool.random(using: &chance) ? time : nil
        deadlines.set(index, to: plain[index])
      default: break
      }
      let least = deadlines.least, now = Instant(nanoseconds: 25)
      #expect(least == plain.compactMap(\.self).min())
      for index in plain.indices {
        let isDue = deadlines.isDue(index, now: now)
        #expect(isDue == plain[index].map { $0 <= now } ?? false)
      }
    }
  }
}
