// tests/rooms: includes that scripts/check-rooms must reject.
#pragma once
#include "high/high.h"
