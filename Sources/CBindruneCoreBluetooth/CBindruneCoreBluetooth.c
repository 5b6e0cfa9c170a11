#include "CBindruneCoreBluetooth.h"
