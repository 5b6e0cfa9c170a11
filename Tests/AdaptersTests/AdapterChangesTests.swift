import BindruneAdapters
import BindruneWire
import Synchronization
import Testing

/// Looks that are given, and no time.
@Suite struct AdapterChangesTests {
  private final class Looks: Sendable {
    private let state: Mutex<[[BluetoothAdapter]]>
    private let pauses = Mutex(0)
    init(_ looks: [[BluetoothAdapter]]) { state = Mutex(looks) }
    var paused: Int { pauses.withLock { $0 } }
    /// Ends like a cancelled task after the last look.
    var changes: AdapterChanges {
      AdapterChanges {
        self.state.withLock { $0.isEmpty ? [] : $0.removeFirst() }
      } pause: {
        self.pauses.withLock { $0 += 1 }
        return self.state.withLock { !$0.isEmpty }
      }
    }
  }
  private func adapter(_ number: UInt16, _ address: UInt64? = nil, isUp: Bool? = nil) -> BluetoothAdapter {
    var adapter = BluetoothAdapter(number: number)
    adapter.address = address.map { DeviceAddress($0) }
    adapter.isUp = isUp
    return adapter
  }
  private func text(_ change: AdapterChanges.Change) -> String {
    switch change {
    case .added(let adapter): "+\(adapter.number)"
    case .changed(let adapter): "*\(adapter.number)"
    case .removed(let adapter): "-\(adapter.number)"
    }
  }

  @Test func theyComeAndGo() async {
    let looks = Looks([
      [adapter(0), adapter(2, 5)],  // at the beginning
      [adapter(0), adapter(2, 5)],  // nothing
      [adapter(0, 7, isUp: true), adapter(1), adapter(2, 5)],  // one is up, another plugged in
      [adapter(1), adapter(2, 6)],  // one is gone, another took the place of a third
      [],
    ])
    var found: [String] = []
    for await change in looks.changes { found.append(text(change)) }
    #expect(found == ["+0", "+2", "*0", "+1", "-0", "-2", "+2", "-1", "-2"])
    #expect(looks.paused == 5)
  }

  /// Each reader begins anew.
  @Test func aMachineWithoutAdapters() async {
    let looks = Looks([[], []])
    for await change in looks.changes { Issue.record("\(change)") }
    #expect(looks.paused == 2)
  }
}
