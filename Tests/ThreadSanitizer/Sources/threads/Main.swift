import Foundation

/// Everything that eight producers do to a port, in several sizes; status 1 where one of their promises is broken.
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
