import Bindrune

/// The six digits of a pairing as a picture.
extension PairingDigits {
  /// Five rows of three cells for each digit: an octal digit for each row.
  private static let shapes = [
    0o75557, 0o26227, 0o71747, 0o71717, 0o55711, 0o74717, 0o74757, 0o71111, 0o75757, 0o75717,
  ]
  /// The digits in five lines, 49 columns wide, to be read from afar.
  var picture: [String] {
    (0..<5).map { row in
      text.utf8.enumerated().map { place, digit in
        let cells = Self.shapes[Int(digit - 0x30)] >> (12 - 3 * row)
        let line = [4, 2, 1].map { cells & $0 == 0 ? "  " : "██" }.joined()
        return (place == 3 ? "     " : place == 0 ? "" : "  ") + line
      }.joined()
    }
  }
}
