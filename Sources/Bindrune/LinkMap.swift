import GAP

/// Something for each link. Their numbers ascend, so a look-up is a search of a few steps, hashes nothing and copies nothing.
struct LinkMap<Value> {
  private(set) var keys: [LinkID] = []
  /// None is nil, but while it is changed.
  private var entries: [Value?] = []

  var isEmpty: Bool { keys.isEmpty }
  var values: [Value] { entries.compactMap { $0 } }

  /// Where the link is, or would be.
  private func place(of key: LinkID) -> Int {
    var low = 0, high = keys.count
    while low < high {
      let middle = (low + high) / 2
      if keys[middle].rawValue < key.rawValue { low = middle + 1 } else { high = middle }
    }
    return low
  }
  private func has(_ key: LinkID, at place: Int) -> Bool { place < keys.count && keys[place] == key }

  subscript(_ key: LinkID) -> Value? {
    _read {
      let place = place(of: key)
      if has(key, at: place) { yield entries[place] } else { yield nil }
    }
    _modify {
      let place = place(of: key)
      if !has(key, at: place) {
        keys.insert(key, at: place)
        entries.insert(nil, at: place)
      }
      defer {
        if entries[place] == nil {
          keys.remove(at: place)
          entries.remove(at: place)
        }
      }
      yield &entries[place]
    }
  }
  mutating func removeValue(forKey key: LinkID) -> Value? {
    defer { self[key] = nil }
    return self[key]
  }
}
extension LinkMap: Sendable where Value: Sendable {}
