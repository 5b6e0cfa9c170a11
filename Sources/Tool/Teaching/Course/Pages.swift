// The chapters of Sources/GAP/GAP.docc/Course; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let pages = [
    page01, page02, page03, page04, page05, page06, page07, page08, page09, page10,
  ]
}
