import BindruneGAP

/// An object for each link. Link numbers ascend, so a look-up is a short binary search without hashing.
struct LinkMap<Value: AnyObject> {
  private(set) var keys: [LinkID] = []
  private(set) var values: [Value] = []

  var isEmpty: Bool { keys.isEmpty }

  /// Index of the link, or where to insert it.
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
    get {
      let place = place(of: key)
      return has(key, at: place) ? values[place] : nil
    }
    set {
      let place = place(of: key)
      if has(key, at: place) {
        keys.remove(at: place)
        values.remove(at: place)
      }
      guard let newValue else { return }
      keys.insert(key, at: place)
      values.insert(newValue, at: place)
    }
  }
  mutating func removeValue(forKey key: LinkID) -> Value? {
    defer { self[key] = nil }
    return self[key]
  }
}
extension LinkMap: Sendable where Value: Sendable {}
