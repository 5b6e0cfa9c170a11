import BindruneTransport
import BindruneHCI
import Synchronization

/// Prints the steps of the demo as they happen: a headline, the packets of the step, its results.
final class Story: Sendable {
  private enum Entry {
    case headline(String)
    case packet([UInt8], HCIDirection)
  }
  private struct State {
    var entries: [Entry] = []
    /// The headline of a step, until the packet that begins it has come.
    var awaited: (headline: String, isFirst: @Sendable ([UInt8]) -> Bool)?
    var number = 0
  }
  private let state = Mutex(State())
  private let brief: Bool
  init(brief: Bool) { self.brief = brief }

  /// Receives every packet, on the event loop.
  @Sendable func observed(_ packet: Span<UInt8>, _ direction: HCIDirection) {
    let octets = packet.indices.map { packet[$0] }
    state.withLock { state in
      if let awaited = state.awaited, awaited.isFirst(octets) {
        state.entries.append(.headline(awaited.headline))
        state.awaited = nil
      }
      state.entries.append(.packet(octets, direction))
    }
  }

  /// `isFirst` recognizes the packet that begins the step, if packets of the step before may come after this call, or
  /// that packet before it.
  func step(_ name: String, _ explanation: String, from isFirst: (@Sendable ([UInt8]) -> Bool)? = nil) {
    state.withLock { state in
      state.number += 1
      let headline = "\n" + Console.styled("\(state.number) \(name)", .bold) + "  " + explanation
      let place = state.entries.firstIndex {
        if case .packet(let octets, _) = $0 { isFirst?(octets) == true } else { false }
      }
      if let place {
        state.entries.insert(.headline(headline), at: place)
      } else if let isFirst {
        state.awaited = (headline, isFirst)
      } else {
        state.entries.append(.headline(headline))
      }
    }
  }
  func result(_ text: String, indent: String = "  ") {
    printEntries()
    Console.line(indent + text)
  }
  /// Prints the entries that have not been printed yet.
  func printEntries() {
    let entries = state.withLock { state in
      defer { state.entries = [] }
      return state.entries
    }
    for entry in entries {
      switch entry {
      case .headline(let text): Console.line(text)
      case .packet(let octets, let direction):
        if brief { continue }
        let arrow = direction == .fromHost ? Console.styled("→", .magenta) : Console.styled("←", .cyan)
        for (index, line) in Explainer.lines(octets).enumerated() {
          Console.line("    \(index == 0 ? arrow : " ") " + String(repeating: "  ", count: index) + line)
        }
      }
    }
  }
}
