// The facade imports this module alone: the Bluetooth types in its interface come along.
@_exported import Bindrune
@_exported import FoundationEssentials
