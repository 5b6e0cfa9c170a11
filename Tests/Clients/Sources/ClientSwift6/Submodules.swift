// Apple's module has parts, which a file may import by name.
import CoreBluetooth.CBPeripheral
import CoreBluetooth.CBUUID

import class CoreBluetooth.CBCentralManager

extension CBUUID {
  public static let deviceInformation = CBUUID(string: "180A")
}
public func isNear(_ peripheral: CBPeripheral) -> Bool { peripheral.state == .connected }
public func isOn(_ manager: CBCentralManager) -> Bool { manager.state == .poweredOn }
