// Another package's modules may have the names of our layers' folders: PureSwift has a GATT too.
import BindruneGATT
import GATT
import HCI

let theirs = (GATT.Database(), HCI.Database())
let ours = BindruneGATT.DatabaseBuilder.self
