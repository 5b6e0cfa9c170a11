// swift-format-ignore-file: AlwaysUseLowerCamelCase
// Keys of dictionaries, and UUIDs, as strings: Apple's names and values. Each comment says the type of the value.

// MARK: What a device advertises

/// String.
public let CBAdvertisementDataLocalNameKey = "kCBAdvDataLocalName"
/// Data, the company identifier first.
public let CBAdvertisementDataManufacturerDataKey = "kCBAdvDataManufacturerData"
/// [CBUUID: Data].
public let CBAdvertisementDataServiceDataKey = "kCBAdvDataServiceData"
/// [CBUUID].
public let CBAdvertisementDataServiceUUIDsKey = "kCBAdvDataServiceUUIDs"
/// [CBUUID]: the scanned services whose bit is set in the overflow area. One bit stands for many UUIDs.
public let CBAdvertisementDataOverflowServiceUUIDsKey = "kCBAdvDataHashedServiceUUIDs"
/// NSNumber, dBm.
public let CBAdvertisementDataTxPowerLevelKey = "kCBAdvDataTxPowerLevel"
/// NSNumber, a Bool.
public let CBAdvertisementDataIsConnectable = "kCBAdvDataIsConnectable"
/// [CBUUID].
public let CBAdvertisementDataSolicitedServiceUUIDsKey = "kCBAdvDataSolicitedServiceUUIDs"

// MARK: Managers

/// NSNumber, a Bool: Linux shows no alert; the state says that Bluetooth is off.
public let CBCentralManagerOptionShowPowerAlertKey = "kCBInitOptionShowPowerAlert"
/// String: under which the manager's state is kept.
public let CBCentralManagerOptionRestoreIdentifierKey = "kCBInitOptionRestoreIdentifier"
/// NSNumber, a Bool. Of iOS.
public let CBCentralManagerOptionDeviceAccessForMedia = "kCBInitOptionDeviceAccessForMedia"
/// NSNumber, a Bool: Linux shows no alert; the state says that Bluetooth is off.
public let CBPeripheralManagerOptionShowPowerAlertKey = "kCBInitOptionShowPowerAlert"
/// String: under which the manager's state is kept.
public let CBPeripheralManagerOptionRestoreIdentifierKey = "kCBInitOptionRestoreIdentifier"
/// String, not Apple's: which adapter this manager uses, as `BINDRUNE_HCI` spells it (`hci0`, `tcp:HOST:PORT`,
/// `sim:NAME` …), or the name that an embedding program has given it. Without it, see `AdapterChoice`.
public let CBManagerOptionAdapterKey = "bindruneManagerOptionAdapter"

// MARK: Scanning

/// NSNumber, a Bool: every advertisement is reported, not one for each device.
public let CBCentralManagerScanOptionAllowDuplicatesKey = "kCBScanOptionAllowDuplicates"
/// [CBUUID]: devices that solicit one of these services are reported too.
public let CBCentralManagerScanOptionSolicitedServiceUUIDsKey = "kCBScanOptionSolicitedServiceUUIDs"

// MARK: Connecting

/// NSNumber, a Bool.
public let CBConnectPeripheralOptionNotifyOnConnectionKey = "kCBConnectOptionNotifyOnConnection"
/// NSNumber, a Bool.
public let CBConnectPeripheralOptionNotifyOnDisconnectionKey = "kCBConnectOptionNotifyOnDisconnection"
/// NSNumber, a Bool.
public let CBConnectPeripheralOptionNotifyOnNotificationKey = "kCBConnectOptionNotifyOnNotification"
/// NSNumber: seconds to wait before the first attempt to connect.
public let CBConnectPeripheralOptionStartDelayKey = "kCBConnectOptionStartDelay"
/// NSNumber, a Bool: a link that ends, except by the app, is made again.
public let CBConnectPeripheralOptionEnableAutoReconnect = "kCBConnectOptionEnableAutoReconnect"
/// NSNumber, a Bool. Of iOS.
public let CBConnectPeripheralOptionEnableTransportBridgingKey = "kCBConnectOptionEnableTransportBridging"
/// NSNumber, a Bool. Of iOS.
public let CBConnectPeripheralOptionRequiresANCS = "kCBConnectOptionRequiresANCS"

// MARK: Restoring

/// [CBPeripheral].
public let CBCentralManagerRestoredStatePeripheralsKey = "kCBRestoredPeripherals"
/// [CBUUID].
public let CBCentralManagerRestoredStateScanServicesKey = "kCBRestoredScanServices"
/// [String: Any].
public let CBCentralManagerRestoredStateScanOptionsKey = "kCBRestoredScanOptions"
/// [CBMutableService].
public let CBPeripheralManagerRestoredStateServicesKey = "kCBRestoredServices"
/// [String: Any].
public let CBPeripheralManagerRestoredStateAdvertisementDataKey = "kCBRestoredAdvertisement"

// MARK: UUIDs. Assigned Numbers, §3.7

/// NSNumber.
public let CBUUIDCharacteristicExtendedPropertiesString = "2900"
/// String.
public let CBUUIDCharacteristicUserDescriptionString = "2901"
/// NSNumber.
public let CBUUIDClientCharacteristicConfigurationString = "2902"
/// NSNumber.
public let CBUUIDServerCharacteristicConfigurationString = "2903"
/// Data.
public let CBUUIDCharacteristicFormatString = "2904"
/// Data.
public let CBUUIDCharacteristicAggregateFormatString = "2905"
/// Data.
public let CBUUIDCharacteristicValidRangeString = "2906"
/// Data.
public let CBUUIDCharacteristicObservationScheduleString = "2910"
/// The PSM of a published L2CAP channel, a characteristic's value.
public let CBUUIDL2CAPPSMCharacteristicString = "ABDD3056-28FA-441D-A470-55A75A52553A"
