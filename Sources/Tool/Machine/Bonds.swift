import ArgumentParser
import Bindrune
import BindruneSystem
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneGATT
import SystemPackage

struct Bonds: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Show or remove the devices that have paired with this machine.",
    discussion: """
      The keys of paired devices are in one file: BINDRUNE_BONDS names it; otherwise it is \
      ~/.local/state/bindrune/bonds, for root /var/lib/bindrune/bonds. No key is printed, except by export \
      --with-keys. End programs that use the adapter before you remove a bond: they have it in memory, and may store \
      it again. A copy that export makes has the keys: its readers can pass for these devices, or for this machine.
      """,
    subcommands: [List.self, Show.self, Remove.self, Export.self, Import.self])

  struct List: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "List the bonds of each adapter, the longest unused first.")
    @OptionGroup var file: BondFileOptions
    @Flag(help: "Print one JSON object per bond.")
    var json = false

    func run() async throws {
      let stored = try await file.open()
      guard !stored.bonds.isEmpty || json else {
        return Console.line("There are no bonds in \(stored.path.printable()).")
      }
      var last: PeerAddress?
      for (adapter, bond) in stored.bonds {
        if json {
          Console.line(bond.json(of: adapter))
          continue
        }
        if adapter != last { Console.line(Console.styled("adapter \(adapter)", .bold)) }
        last = adapter
        Console.line("  \(Console.styled("\(bond.address)".padded(24), .cyan))  \(bond.strength)")
      }
    }
  }

  struct Show: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Show what is stored of a device, without its keys.")
    @Argument(help: bondedDevice) var device: WantedAddress
    @OptionGroup var file: BondFileOptions
    @Flag(help: "Print one JSON object per bond.")
    var json = false

    func run() async throws {
      for (adapter, bond) in try await file.open().bonds(with: device) {
        if json {
          Console.line(bond.json(of: adapter))
          continue
        }
        Console.line(Console.styled("\(bond.address)", .bold))
        for (label, text) in bond.lines(of: adapter) { Console.line("  \(label.padded(16))\(text)") }
      }
    }
  }

  struct Remove: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Remove the bonds with a device.",
      discussion: "The device keeps its keys: remove this machine there too, and then pair again.")
    @Argument(help: bondedDevice) var device: WantedAddress
    @OptionGroup var file: BondFileOptions

    func run() async throws {
      let stored = try await file.open()
      for (adapter, bond) in try stored.bonds(with: device) {
        try await stored.file.remove(bond.peer, of: adapter)
        Console.line("removed \(bond.address) of adapter \(adapter)")
      }
    }
  }
}

extension Bonds {
  struct Export: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Copy all bonds, with their keys, into a new file.",
      discussion: "The file has the mode 0600. Its readers can pass for these devices, or for this machine.")
    @Argument(help: ArgumentHelp("A file that does not exist yet.", valueName: "file"), completion: .file())
    var destination: String?
    @Flag(help: "Without a file: print the bonds, and so the keys, to standard output.")
    var withKeys = false
    @OptionGroup var file: BondFileOptions

    func validate() throws {
      if destination == nil, !withKeys {
        throw ValidationError("The copy has keys: name a file for it, or print the keys with --with-keys.")
      }
    }
    func run() async throws {
      let list = try await file.open().file.all()
      guard let destination else { return Console.write(String(decoding: list.text, as: UTF8.self)) }
      do throws(Errno) { try FilePath(text: destination).create(list.text) } catch {
        throw Failure(
          "The file \(destination.printable()) cannot be written, \(error): choose a free name in your own folder.")
      }
      Console.line("\(list.entries.count) bonds and their keys are in \(destination.printable())")
    }
  }

  struct Import: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Store the bonds of a file that export has made.",
      discussion: """
        Each bond takes the place of one with the same device and adapter. Nothing is stored if anything in the file \
        is damaged.
        """)
    @Argument(help: ArgumentHelp("A file of bonds.", valueName: "file"), completion: .file())
    var source: String
    @OptionGroup var file: BondFileOptions

    func run() async throws {
      let list = try read(), stored = try await file.open().file
      for entry in list.entries {
        let forgotten = try await stored.save(entry.bond, of: entry.adapter)
        Console.line("stored \(entry.bond.address) of adapter \(entry.adapter)")
        for peer in forgotten { Console.warn("The bond with \(peer) had to go: the file has no room for more.") }
      }
    }
    private func read() throws -> BondList {
      // Its keys are believed, so it is not just any data.
      if let planted = try? FilePath(text: source).planted(.file) {
        throw Failure("\(planted.sentence(or: "export the bonds again")).")
      }
      let limit = 4 << 20, text: [UInt8]
      do throws(Errno) {
        text = try Errno.typed {
          let descriptor = try FileDescriptor.opened(
            FilePath(text: source), .readOnly, options: [.nonBlocking, .noControllingTerminal])
          return try descriptor.closeAfter { try descriptor.readAll(upTo: limit) }
        }
      } catch {
        throw Failure("The file \(source.printable()) cannot be read, \(error): name a file that export has made.")
      }
      do throws(BondTextError) { return try BondList(text: text) } catch {
        throw Failure("The file \(source.printable()) \(error.words): nothing was stored; export the bonds again.")
      }
    }
  }
}

private var bondedDevice: ArgumentHelp {
  ArgumentHelp(
    "Its address, such as F0:F1:F2:F3:F4:F5, with /public or /random if both are there.", valueName: "address")
}

struct BondFileOptions: ParsableArguments {
  @Option(help: ArgumentHelp("The file of the bonds.", valueName: "path"), completion: .file())
  var bonds: String?

  /// Reads the file. Warns of what other users can read.
  fileprivate func open() async throws -> StoredBonds {
    let path = try bonds ?? BondFile.defaultPath(), file = BondFile(path: path)
    for warning in file.warnings { Console.warn(warning) }
    var stored = StoredBonds(path: path, file: file)
    // By adapter.
    var known: Set<PeerAddress> = []
    let entries = try await file.all().entries
    for adapter in entries.map(\.adapter) where known.insert(adapter).inserted {
      stored.bonds += entries.filter { $0.adapter == adapter }.map { (adapter, $0.bond) }
    }
    return stored
  }
}

private struct StoredBonds {
  let path: String
  let file: BondFile
  var bonds: [(adapter: PeerAddress, bond: Bond)] = []

  /// Throws if there are none.
  func bonds(with device: WantedAddress) throws -> [(adapter: PeerAddress, bond: Bond)] {
    let found = bonds.filter { each in
      let address = each.bond.address
      return address.address == device.address && (device.type.map { ($0 == .random) == address.isRandom } ?? true)
    }
    guard !found.isEmpty else {
      throw Failure(
        "There is no bond with \(device.address.text) in \(path.printable()): \"bindrune bonds list\" shows all bonds.")
    }
    return found
  }
}

extension Bond {
  /// The numbers of a client's subscriptions; nil: the record is not readable.
  private var subscriptions: Int? {
    if client.isEmpty { return 0 }
    return (try? ClientRecord(client.span))?.configurations.count
  }
  private static func names(of keys: DistributedKeys) -> [String] {
    var names: [String] = []
    if keys.longTermKey != nil { names.append("Long Term Key") }
    if keys.irk != nil { names.append("Identity Resolving Key") }
    if keys.csrk != nil { names.append("Signature Key") }
    return names
  }

  fileprivate func lines(of adapter: PeerAddress) -> [(String, String)] {
    func list(_ names: [String]) -> String { names.isEmpty ? "none" : names.joined(separator: ", ") }
    return [
      ("adapter", "\(adapter)"), ("known as", "\(peer)"), ("strength", "\(strength)"),
      ("our keys", list(Self.names(of: ours))), ("its keys", list(Self.names(of: peers))),
      ("signed writes", "next of ours \(ourSignCounter), least of its \(peersSignCounter)"),
      ("subscriptions", subscriptions.map { "\($0)" } ?? "unreadable"),
    ]
  }
  fileprivate func json(of adapter: PeerAddress) -> JSONLine {
    var line = JSONLine()
    line.add("adapter", "\(adapter)")
    line.add("address", "\(address)")
    line.add("peer", "\(peer)")
    line.add("secureConnections", strength.isSecureConnections)
    line.add("authenticated", strength.isAuthenticated)
    line.add("keySize", strength.size.count)
    line.add("ourKeys", Self.names(of: ours))
    line.add("peersKeys", Self.names(of: peers))
    line.add("ourSignCounter", Int(ourSignCounter))
    line.add("peersSignCounter", Int(peersSignCounter))
    line.add("subscriptions", subscriptions)
    return line
  }
}
