/// # HeardDevices
/// **Overview**: the devices that have been heard, each in a numbered slot, by which others may index a list.
///
/// **Function**: bounded. Without a free slot, the device that has been silent for longest loses its slot, so that a
/// storm of new addresses displaces absent devices before present ones. Every call takes constant time.
struct HeardDevices {
  static var capacity: Int { 2048 }
  /// Octets remembered of one PDU: those of a legacy one. Longer data are reported, but not remembered.
  static var longest: Int { 31 }

  struct Device {
    let peer: PeerAddress
    /// The last advertisement that had a scan response, and the last scan response.
    var advertisement: HeardPDU?
    var scanResponse: HeardPDU?
    fileprivate var newer: Int?, older: Int?
  }
  private var devices: [Device] = []
  private var slots: [PeerAddress: Int] = [:]
  private var newest: Int?, oldest: Int?

  var count: Int { devices.count }
  func slot(of peer: PeerAddress) -> Int? { slots[peer] }
  subscript(slot: Int) -> Device {
    get { devices[slot] }
    _modify { yield &devices[slot] }
  }

  mutating func removeAll() { self = HeardDevices() }
  /// Records that the device has been heard. `isNew`: its slot belonged to another device, or to none.
  mutating func hear(_ peer: PeerAddress) -> (slot: Int, isNew: Bool) {
    if let slot = slots[peer] {
      if slot != newest {
        unlink(slot)
        link(slot)
      }
      return (slot, false)
    }
    let slot: Int
    if devices.count < Self.capacity {
      slot = devices.count
      devices.append(Device(peer: peer))
    } else {
      slot = oldest!
      slots[devices[slot].peer] = nil
      unlink(slot)
      devices[slot] = Device(peer: peer)
    }
    slots[peer] = slot
    link(slot)
    return (slot, true)
  }

  private mutating func unlink(_ slot: Int) {
    let (newer, older) = (devices[slot].newer, devices[slot].older)
    if let newer { devices[newer].older = older } else { newest = older }
    if let older { devices[older].newer = newer } else { oldest = newer }
  }
  private mutating func link(_ slot: Int) {
    devices[slot].newer = nil
    devices[slot].older = newest
    if let newest { devices[newest].newer = slot } else { oldest = slot }
    newest = slot
  }
}
