// Another package's modules may have the names of our layers' folders: PureSwift has a GATT too.
import BindruneGATT
import GATT
import HCI

func theirDatabases() -> (GATT.Database, HCI.Database) { (GATT.Database(), HCI.Database()) }
func ourBuilder() -> BindruneGATT.DatabaseBuilder { BindruneGATT.DatabaseBuilder() }
