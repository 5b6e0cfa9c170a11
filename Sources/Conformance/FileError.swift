/// An error in a script or a database file: its place, and its cure.
///
///     values.json:12:7: unknown key "propertys"; a characteristic has uuid, properties, handle, …
public struct FileError: Error, CustomStringConvertible, Sendable, Equatable {
  public var file: String
  /// From 1; 0 for the whole file.
  public var line: Int
  /// In characters, from 1.
  public var column: Int
  /// Cause and cure, without a full stop.
  public var message: String

  public init(_ file: String, line: Int = 0, column: Int = 1, _ message: String) {
    self.file = file
    self.line = line
    self.column = column
    self.message = message
  }
  public var description: String { line == 0 ? "\(file): \(message)" : "\(file):\(line):\(column): \(message)" }
}
