import Bindrune
import Glibc

/// `BondWriter PATH ADAPTER COUNT` stores bonds of the adapter with this number in the file: bond after bond, with four
/// peers in turn, COUNT of them, or with 0 until it is killed. Prints the number of each bond after it has been stored.
///
/// Prints an error, and then how many bonds are in the file and how many in memory.
@main
struct BondWriter {
  static func main() async {
    let arguments = CommandLine.arguments
    guard arguments.count == 4, let number = UInt64(arguments[2]), let count = Int(arguments[3]) else { exit(64) }
    let adapter = PeerAddress(DeviceAddress(0xC000_0000_0000 | number), .random)
    let file = BondFile(path: arguments[1])
    var stored = 0
    while count == 0 || stored < count {
      let address = PeerAddress(DeviceAddress(0xF000_0000_0000 | UInt64(stored % 4)), .random)
      var bond = Bond(
        peer: PeerID(address), address: address,
        strength: KeyStrength(isAuthenticated: true, isSecureConnections: true), ours: DistributedKeys(),
        peers: DistributedKeys())
      stored += 1
      bond.ourSignCounter = UInt32(stored)
      bond.client = [UInt8](repeating: UInt8(truncatingIfNeeded: stored), count: 400)
      do throws(BluetoothError) {
        try await file.save(bond, of: adapter)
        say("\(stored)")
      } catch {
        say("\(error)")
        let inFile = await bondCount(in: BondFile(path: arguments[1]), adapter)
        let inMemory = await bondCount(in: file, adapter)
        say("file: \(inFile), memory: \(inMemory)")
        exit(1)
      }
    }
  }
  private static func bondCount(in file: BondFile, _ adapter: PeerAddress) async -> String {
    do throws(BluetoothError) { return try await "\(file.bonds(of: adapter).count)" } catch { return "\(error)" }
  }
  /// At once, also into a pipe. Exits when nobody reads the pipe any more, as after the parent was killed.
  private static func say(_ text: String) {
    print(text)
    if fflush(nil) != 0 { exit(1) }
  }
}
