/// A file of the course: a recording, a script, a database.
struct CourseFile {
  var name: String
  var octets: [UInt8]
  /// From hexadecimal digits.
  init(_ name: String, _ digits: String) {
    self.name = name
    octets = (try? Explain.parse(digits)) ?? []
  }
}
