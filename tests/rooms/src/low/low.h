// tests/rooms: what scripts/check-rooms must refuse.
#pragma once
#include "high/high.h"
