import Foundation

/// All actions of eight producers on a port, in several sizes; status 1 if an invariant is violated.
@main struct Main {
  static func main() async {
    var faults: [String] = []
    for isForLink in [false, true] {
      for capacity in [0, 2_000, 1 << 16] {
        faults += SendPortThreads(capacity: capacity, isForLink: isForLink).share(count: 2_000)
      }
      for capacity in [0, 1 << 16] { faults += await SendPortThreads(capacity: capacity, isForLink: isForLink).close() }
    }
    for fault in faults { print(fault) }
    exit(faults.isEmpty ? 0 : 1)
  }
}
