some_room(low)
some_room(high USES low)
