// One import is enough for an embedder: the types in this module's interface come along.
@_exported import ATT
@_exported import BindruneSimulator
@_exported import BindruneTransport
@_exported import BindruneWire
@_exported import GAP
@_exported import GATT
@_exported import HCI
