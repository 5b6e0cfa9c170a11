import BindruneWire
import BindruneGATT

/// The shell's help.
enum ShellHelp {
  static var overview: String {
    let width = ShellVerb.allCases.map(\.rawValue.count).max() ?? 0
    let verbs = ShellVerb.allCases.map { "  " + Console.styled($0.rawValue.padded(width), .bold) + "  " + $0.abstract }
    return
      (verbs + ["", "Tab completes commands and names. `help TOPIC` explains a command, or one of these:"]
      + ["  " + topics.map(\.name).joined(separator: ", ")]).joined(separator: "\n")
  }
  static var names: [String] { ShellVerb.allCases.map(\.rawValue) + topics.map(\.name) }

  /// nil: there is no such topic. `example`: an attribute of the device for a command.
  static func text(_ topic: String, example: (ShellVerb) -> String?) -> String? {
    if let verb = ShellVerb(rawValue: topic) {
      let attribute = example(verb)
      let lines = [verb.usage, "  " + verb.abstract] + details(verb)
      return (lines + (attribute.map { ["", "Here, for example:", "  \(sample(verb, $0))"] } ?? [])).joined(
        separator: "\n")
    }
    let wanted = topic.lowercased()
    return topics.first { $0.name == wanted || $0.name + "s" == wanted }.map { Console.withCommands($0.text) }
  }

  private static func sample(_ verb: ShellVerb, _ attribute: String) -> String {
    verb == .write ? "write \(attribute) 01" : "\(verb.rawValue) \(attribute)"
  }
  private static func details(_ verb: ShellVerb) -> [String] {
    switch verb {
    case .read:
      [
        "",
        "ATTRIBUTE is a UUID (2A19), a name (battery-level), a handle (0x0012), or a path from its service or",
        "characteristic (180F/2A19, battery-level/2902). Values of any length are read completely.",
      ]
    case .write:
      [
        "", "The device confirms each write, or refuses it with an error. With --without-response it does not",
        "answer: the shell returns when the value has arrived, and cannot see a refusal.",
      ]
    case .subscribe:
      [
        "",
        "The shell writes the CCCD of the characteristic. --indications requests values that are confirmed one by",
        "one, if the device has both kinds.",
      ]
    case .wait:
      [
        "",
        "Returns when COUNT values (default 1) have come since the last `wait`; fails after SECONDS (default 10).",
      ]
    case .help, .list, .unsubscribe, .format, .info, .connect, .quit: []
    }
  }

  private static let topics: [(name: String, text: String)] = [
    (
      "attribute",
      """
      A device offers a table of attributes. Each has a handle, which is its number in the table, a type,
      which is a UUID, and a value of up to 512 octets. Reading, writing and subscribing are requests about one handle.
      Services, characteristics and descriptors are attributes, too: `list` shows how they make a tree.
      """
    ),
    (
      "service",
      """
      A service is what a device can do: Battery, Heart Rate. In the table it is a range of handles that begins with
      its declaration. Services that the Bluetooth SIG has defined have UUIDs of 16 bits (180F), others of 128.
      `list SERVICE` shows one of them.
      """
    ),
    (
      "characteristic",
      """
      A characteristic is one value of a service: Battery Level in Battery. Its properties list what a client may do:
      read, write, write-without-response, notify, indicate. The device may still refuse.
      """
    ),
    (
      "descriptor",
      """
      A descriptor describes a characteristic, and follows it in the table: how to interpret its values, or, as the
      CCCD, whether the device sends them.
      """
    ),
    (
      "cccd",
      """
      The Client Characteristic Configuration Descriptor (2902) is the switch of a characteristic: 1 makes the device
      notify its values, 2 indicate them, 0 neither. Each client has a switch of its own. After a new connection it
      is off, unless the two are bonded. `subscribe` and `unsubscribe` write it.
      """
    ),
    (
      "notification",
      """
      A notification is a value that the device sends by itself, without confirmation. One carries ATT_MTU − 3 octets;
      `info` shows this number.
      """
    ),
    (
      "indication",
      """
      An indication is a value that the device sends by itself and that the other side confirms: one at a time, so
      slower than notifications.
      """
    ),
    (
      "handle",
      """
      A handle is an attribute's number in the device's table, 0x0001 to 0xFFFF. It stays the same until the device
      changes its services. `list` shows them; every command takes one instead of a name.
      """
    ),
    (
      "uuid",
      """
      A UUID is an attribute's type. Those of 16 bits are the Bluetooth SIG's and have names (2A19 is Battery Level);
      anyone may define those of 128 bits. Several attributes may have the same one: a path such as 180F/2A19
      selects one of them.
      """
    ),
    (
      "error",
      """
      A device that refuses a request answers with an ATT error: Read Not Permitted (0x02), Insufficient
      Authentication (0x05: it requires pairing, which bindrune does not support yet), Attribute Not Found (0x0A),
      or an error of the service (0x80 to 0x9F). The link stays up.
      """
    ),
  ]
}

/// What Tab offers: commands, and names of services and attributes.
struct ShellCompleter: Sendable {
  private let attributes: [(spelling: String, attribute: RemoteAttribute)]
  private let services: [RemoteService]
  init(_ database: RemoteDatabase = RemoteDatabase()) {
    attributes = database.attributes.map { (database.spelling(of: $0), $0) }
    services = database.services
  }

  func completion(of before: String) -> LineEditor.Completion {
    let words = before.split(separator: " ", omittingEmptySubsequences: false).drop(while: \.isEmpty).map(String.init)
    let word = words.last ?? "", verb = words.count > 1 ? ShellVerb(rawValue: words[0]) : nil
    let place = words.dropFirst().dropLast().count { !$0.isEmpty && !$0.hasPrefix("--") }
    let offers: [LineEditor.Candidate] =
      switch verb {
      case nil where words.count <= 1: ShellVerb.allCases.map { .init(text: $0.rawValue, note: $0.abstract) }
      case nil: []
      case .help?: ShellHelp.names.map { .init(text: $0) }
      case .format?: ValueFormat.allCases.map { .init(text: $0.rawValue) }
      case .list?: services.map { .init(text: $0.uuid.assignedName.map(AttributeName.slug) ?? $0.uuid.description) }
      case .write? where place > 0: options(["--utf8", "--without-response"], word)
      case .read?, .write?, .subscribe?, .unsubscribe?: names(for: verb ?? .read, word)
      case .wait?, .info?, .connect?, .quit?: []
      }
    let wanted = word.lowercased()
    return .init(word: word, candidates: offers.filter { $0.text.lowercased().hasPrefix(wanted) })
  }
  private func options(_ all: [String], _ word: String) -> [LineEditor.Candidate] {
    word.hasPrefix("-") ? all.map { .init(text: $0) } : []
  }
  /// Names, and once a word has been begun, UUIDs and handles.
  private func names(for verb: ShellVerb, _ word: String) -> [LineEditor.Candidate] {
    if word.hasPrefix("-") {
      return options(
        verb == .write ? ["--utf8", "--without-response"] : verb == .subscribe ? ["--indications"] : [], word)
    }
    // Offer descriptors only in a path: most characteristics have the same ones.
    let offered = attributes.filter {
      verb.takes($0.attribute) && ($0.attribute.characteristic != nil || word.contains("/"))
    }
    return offered.flatMap { spelling, attribute in
      let note = "\(attribute.handle.text) \(attribute.uuid.description)"
      let others = word.isEmpty ? [] : [attribute.handle.text, attribute.uuid.description].filter { $0 != spelling }
      return ([spelling] + others).map { LineEditor.Candidate(text: $0, note: note) }
    }
  }
}
