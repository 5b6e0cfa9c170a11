import BindruneTrace
import BindruneWire

/// What happened in a trace, for people and programs.
struct StoryOutput: Sendable {
  var links: [LinkStory], untold: Int
  /// What went wrong on no connection.
  var troubles: [LinkStory.Trouble]
  init(_ story: TraceStory) { (links, untold, troubles) = (story.links, story.untold, story.troubles) }

  var hasTroubles: Bool { !troubles.isEmpty || links.contains { !$0.troubles.isEmpty } }
  /// Lines that a screen has room for, above what else there is to read.
  private static var room: Int { 20 }

  /// Connections with troubles before all others; what has no room is counted.
  func lines() -> [String] {
    var lines = troubles.flatMap(Self.lines)
    // Those with troubles first; each group in the order of the trace.
    let told = links.filter { !$0.troubles.isEmpty } + links.filter { $0.troubles.isEmpty }
    var left = told.count + untold
    for link in told {
      let own = Self.head(link) + link.troubles.flatMap(Self.lines)
      if !lines.isEmpty, lines.count + own.count > Self.room { break }
      lines += own
      left -= 1
    }
    if left > 0 { lines.append(Console.styled("\(counted(left, "further connection"))", .dim)) }
    return lines
  }
  private static func head(_ link: LinkStory) -> [String] {
    var place = "link \(name(link))"
    if link.adapter > 0, link.adapter != .max { place = "hci\(link.adapter) " + place }
    place += ", frames \(link.firstRecord) … \(link.lastRecord)"
    return [Console.styled(place, .cyan) + ": " + link.beginning.printable()]
      + wrapped("  " + link.course.printable(), "  ")
  }
  private static func lines(_ trouble: LinkStory.Trouble) -> [String] {
    let lines = wrapped("  ! frame \(trouble.number)  \(trouble.sentence.printable())", "    ")
    return ["  " + Console.styled("!", .red) + lines[0].dropFirst(3)] + lines.dropFirst()
  }
  /// In a pipe one line; on a terminal as many as its width asks for.
  private static func wrapped(_ text: String, _ margin: String) -> [String] {
    guard Console.isTerminal, text.columns > Screen.size.columns else { return [text] }
    let pieces = text.wrapped(max(20, Screen.size.columns - margin.utf8.count - 2))
    return [pieces[0]] + pieces.dropFirst().map { margin + $0 }
  }
  static func name(_ link: LinkStory) -> String {
    "0x" + hexDigits(UInt64(link.connection), link.connection > 0xFFFF ? 8 : 4)
  }

  /// An object for each connection.
  var objects: [JSONLine] { links.map(Self.object) }
  static func object(_ link: LinkStory) -> JSONLine {
    var object = JSONLine()
    object.add("adapter", Int(link.adapter))
    object.add("connection", name(link).lowercased())
    object.add("first", link.firstRecord)
    object.add("last", link.lastRecord)
    object.add("story", link.sentence)
    object.add("troubles", link.troubles.map(Self.object))
    return object
  }
  static func object(_ trouble: LinkStory.Trouble) -> JSONLine {
    var object = JSONLine()
    object.add("frame", trouble.number)
    object.add("what", trouble.sentence)
    return object
  }
}
